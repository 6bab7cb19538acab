/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_port.h: what a port provides, and what the runtime offers to a port.
 *
 * Start-up code calls main() with .data copied and .bss cleared. Every wait in a port is bounded,
 * save fwr_port_byte_out. Nothing here is called from an interrupt.
 */
#ifndef FWR_PORT_H
#define FWR_PORT_H

#include <stdint.h>

#if defined(__GNUC__)
#define FWR_NORETURN __attribute__((noreturn))
#define FWR_WEAK __attribute__((weak))
#else
#define FWR_NORETURN
#define FWR_WEAK
#endif

/* ---- The port provides --------------------------------------------------------------------- */

/* Facts about the board, constant after fwr_port_init. Texts are short ASCII, never NULL. */
struct fwr_port_info {
    const char *board;          /* "mps2-an386" */
    const char *text;           /* what start-up found: "reset clock, PLL not ready", or "" */
    const char *counter_unit;   /* "instructions", "cycles" or "ns": what one count means */
    uint32_t counter_scale_num; /* units = ticks * num / den; SysTick at 25 MHz */
    uint32_t counter_scale_den; /*   under -icount shift=0: 40 / 1 */
    void *stack_low;            /* lowest byte of the stack, word aligned; NULL if not known */
    void *stack_high;           /* one past its highest byte */
    uint32_t receive_bytes;     /* that are kept while nobody calls fwr_port_byte_in; 0 or 1 of a
                                 * polled UART without FIFO: one request at a time reaches it */
};

/* Brings up clocks, console and counter. Called once, first. */
void fwr_port_init(void);

/* Valid after fwr_port_init. */
const struct fwr_port_info *fwr_port_info(void);

/* The next received byte, 0 to 255, or -1 if there is none yet. A port with an operating system
 * may wait a little before it says -1. */
int32_t fwr_port_byte_in(void);

/* Sends one byte, waiting until the transmitter takes it. Polled: it works with interrupts off and
 * from a fault handler. Zero ends a frame, so a port that buffers flushes on it. */
void fwr_port_byte_out(uint8_t byte);

/* Ticks since fwr_port_init; never runs backwards, never wraps in practice. */
uint64_t fwr_port_counter(void);

/* Begins a new tick now, so that a measurement from here repeats exactly although a tick may be
 * many instructions. The count may jump forwards. Empty where a tick is one instruction. */
void fwr_port_counter_align(void);

/* Restarts the firmware as after power-on. */
FWR_NORETURN void fwr_port_reset(void);

/* Stops for good: nothing can be said over the link any more. */
FWR_NORETURN void fwr_port_fatal(void);

/* Copies size bytes from memory that is not addressable. 0, or a negative enum fwr_status. */
int32_t fwr_port_read(uint32_t offset, void *dst, uint32_t size);

/* The same while the caller goes on: begins a read, of which one at a time is under way, and waits
 * for its end. Without DMA the start reads and the wait does nothing. */
int32_t fwr_port_read_start(uint32_t offset, void *dst, uint32_t size);
int32_t fwr_port_read_wait(void);

/* ---- A port with further cores provides ---------------------------------------------------- */

/* Has the second core do job(call, argument), behind what it was given before. Returns at once, or
 * when there is room; 0, or a negative enum fwr_status. A port without one does the job itself. */
int32_t fwr_port_core_start(void (*job)(uint32_t call, const void *argument), uint32_t call,
                            const void *argument);

/* Returns when the last job of that number is over and what it wrote can be read: 0, or a negative
 * enum fwr_status if the core has stopped. It sleeps meanwhile. */
int32_t fwr_port_core_wait(uint32_t call);

/* ---- A port with a DMA controller provides -------------------------------------------------- */

/* Begins to copy size bytes between memories that do not overlap, when what was begun before is
 * over: 0, or a negative enum fwr_status. */
int32_t fwr_port_copy_start(void *to, const void *from, uint32_t size);

/* Returns when all that was begun is over and can be read: 0, or a negative enum fwr_status if the
 * controller reports an error. It sleeps meanwhile. */
int32_t fwr_port_copy_wait(void);

/* ---- The port may provide: without, fwr_defaults.c does nothing -------------------------- */

/* Whether the console can run at this baud, with an error of at most 2 percent: 0, or a negative
 * enum fwr_status. `now` changes it, after the last byte has left. Baud 0 is that of start-up. */
int32_t fwr_port_set_baud(uint32_t baud, int now);

/* Called with 1 before and with 0 after each run, outside of what is counted: an output pin here
 * shows a power analyser where the inference lies. */
void fwr_port_trace_pin(int running);

/* ---- With FWR_WATCHDOG the port provides --------------------------------------------------- */

/* The watchdog begins anew. fwr_port_init has started it. Called around every operator and while
 * the line is waited for. */
void fwr_port_watchdog_kick(void);

/* ---- The runtime offers -------------------------------------------------------------------- */

/* Which registers the words of a fault are; ABI.md names them in order. */
enum fwr_fault_family {
    FWR_FAULT_CORTEX_M = 1,    /* r0 r1 r2 r3 r12 lr pc xpsr cfsr hfsr mmfar bfar */
    FWR_FAULT_RISCV32 = 2,     /* mcause mepc mtval mstatus ra sp a0 a1 a2 a3 a4 a5 */
    FWR_FAULT_HOST = 3,        /* signal, low and high half of the address, then zeros */
    FWR_FAULT_GUARD = 4,       /* not the processor's: see fwr_fence.c */
    FWR_FAULT_WATCHDOG = 0x100 /* added to a family: it bit, and the firmware has restarted */
};

#define FWR_FAULT_WORDS 12

struct fwr_fault {
    uint32_t family; /* enum fwr_fault_family; registers a core lacks are zero */
    uint32_t words[FWR_FAULT_WORDS];
};

/* The port's fault handler fills a struct fwr_fault, on a stack with room for it and for the link
 * (a full stack is a common cause: reset it to its top), and calls this. It sends the report, then
 * answers every request with it until one says reset. */
FWR_NORETURN void fwr_fault(const struct fwr_fault *fault);

/* With FWR_WATCHDOG: for the port's handler of the interrupt that comes before the watchdog resets
 * the chip, with what the core was at. Keeps it and restarts; the report is sent after that. */
FWR_NORETURN void fwr_watchdog_expired(const struct fwr_fault *fault);

#endif
