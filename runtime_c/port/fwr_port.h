/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_port.h: functions that a port provides, and functions that the runtime offers to a port.
 *
 * Start-up code calls main() after it has copied .data and cleared .bss. Every wait in a port is
 * bounded, except in fwr_port_byte_out. None of these functions is called from an interrupt.
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

/* ---- Provided by the port -------------------------------------------------------------------- */

/* Properties of the board, constant after fwr_port_init. Texts are short ASCII strings, never NULL.
 */
struct fwr_port_info {
    const char *board;          /* "mps2-an386" */
    const char *text;           /* start-up result: "reset clock, PLL not ready", or "" */
    const char *counter_unit;   /* unit of the counter: "instructions", "cycles" or "ns" */
    uint32_t counter_scale_num; /* units = ticks * num / den; SysTick at 25 MHz */
    uint32_t counter_scale_den; /*   under -icount shift=0: 40 / 1 */
    void *stack_low;            /* lowest byte of the stack, word aligned; NULL if unknown */
    void *stack_high;           /* one past the highest byte */
    uint32_t receive_bytes; /* receive buffer between calls of fwr_port_byte_in; 0 or 1 for a polled
                               UART without FIFO, which accepts one request at a time */
};

/* Initializes clocks, console and counter. Called once, before all others. */
void fwr_port_init(void);

/* Valid after fwr_port_init. */
const struct fwr_port_info *fwr_port_info(void);

/* Returns the next received byte, 0 to 255, or -1 if there is none. A port with an operating system
 * may wait briefly before it returns -1. */
int32_t fwr_port_byte_in(void);

/* Sends one byte, waiting for the transmitter. Works with interrupts disabled and in a fault
 * handler. A buffering port flushes on a zero byte, which ends a frame. */
void fwr_port_byte_out(uint8_t byte);

/* Returns ticks since fwr_port_init. Monotonic; does not wrap in practice. */
uint64_t fwr_port_counter(void);

/* Starts a new tick, so that a measurement repeats exactly even if a tick lasts many instructions.
 * The count may jump forward. Empty if a tick is one instruction. */
void fwr_port_counter_align(void);

/* Restarts the firmware as after power-on. */
FWR_NORETURN void fwr_port_reset(void);

/* Stops permanently when the link cannot report any more. */
FWR_NORETURN void fwr_port_fatal(void);

/* Copies size bytes from memory that is not addressable. Returns 0 or a negative enum fwr_status.
 */
int32_t fwr_port_read(uint32_t offset, void *dst, uint32_t size);

/* Asynchronous read: start one at a time, then wait for its end. Without DMA, start copies and wait
 * does nothing. */
int32_t fwr_port_read_start(uint32_t offset, void *dst, uint32_t size);
int32_t fwr_port_read_wait(void);

/* ---- Provided by a port with several cores --------------------------------------------------- */

/* Queues job(call, argument) for the second core. Returns at once, or when the queue has room: 0 or
 * a negative enum fwr_status. A port with one core executes the job itself. */
int32_t fwr_port_core_start(void (*job)(uint32_t call, const void *argument), uint32_t call,
                            const void *argument);

/* Waits, asleep, until the last job with this number has completed and its results are visible.
 * Returns 0, or a negative enum fwr_status if the core has stopped. */
int32_t fwr_port_core_wait(uint32_t call);

/* ---- Provided by a port with a DMA controller ------------------------------------------------ */

/* Starts a copy between regions that do not overlap, after earlier copies of the channel. Returns 0
 * or a negative enum fwr_status. */
int32_t fwr_port_copy_start(uint32_t channel, void *to, const void *from, uint32_t size);

/* Waits, asleep, until the copies of a channel have completed and are visible. Returns 0, or a
 * negative enum fwr_status after an error of the controller. */
int32_t fwr_port_copy_wait(uint32_t channel);

/* ---- Provided by the port with FWR_PRIVATE_IO; fwr_defaults.c provides memcpy ---------------- */

/* Copies an input to, or an output from, a pool that only an accelerator can access, and waits for
 * the end. Parts of a tensor may start at any address. Returns 0 or a negative enum fwr_status. */
int32_t fwr_port_pool_write(void *pool, const void *from, uint32_t size);
int32_t fwr_port_pool_read(void *to, const void *pool, uint32_t size);

/* ---- Optional; fwr_defaults.c provides empty defaults ---------------------------------------- */

/* Checks whether the console supports a baud rate within 2 percent: 0 or a negative enum
 * fwr_status. With `now`, also switches after the last byte has left. Baud 0 is the rate at
 * start-up. */
int32_t fwr_port_set_baud(uint32_t baud, int now);

/* Called with 1 before and 0 after each run, outside of the measured time: drive an output pin to
 * show the inference on a power analyzer. */
void fwr_port_trace_pin(int running);

/* Stores words that tell the kind of core and chip, none of which is unique to a device; ABI.md
 * lists them in order. Returns their number, at most FWR_IDENTITY_WORDS_MAX; 0 if there are none.
 * Called in a profile image only. */
#define FWR_IDENTITY_WORDS_MAX 4
uint32_t fwr_port_identity(uint32_t *words);

/* ---- Provided by the port with FWR_WATCHDOG -------------------------------------------------- */

/* Restarts the watchdog's timeout. Called at every operator and while waiting for bytes;
 * fwr_port_init starts the watchdog. */
void fwr_port_watchdog_kick(void);

/* ---- Provided by the runtime ----------------------------------------------------------------- */

/* The meaning of a fault's words; ABI.md lists them in order. */
enum fwr_fault_family {
    FWR_FAULT_CORTEX_M = 1,    /* r0 r1 r2 r3 r12 lr pc xpsr cfsr hfsr mmfar bfar */
    FWR_FAULT_RISCV32 = 2,     /* mcause mepc mtval mstatus ra sp a0 a1 a2 a3 a4 a5 */
    FWR_FAULT_HOST = 3,        /* signal, low and high half of the address, then zeros */
    FWR_FAULT_GUARD = 4,       /* not a processor fault: see fwr_guard.c */
    FWR_FAULT_XTENSA = 5,      /* exccause epc1 excvaddr ps a0 a1 a2 a3 a4 a5 a6 a7 */
    FWR_FAULT_CORTEX_R = 6,    /* vector pc cpsr dfsr dfar ifsr sp lr r0 r1 r2 r3 */
    FWR_FAULT_WATCHDOG = 0x100 /* added to a family: watchdog expired; firmware restarted */
};

#define FWR_FAULT_WORDS 12

struct fwr_fault {
    uint32_t family; /* enum fwr_fault_family; missing registers are zero */
    uint32_t words[FWR_FAULT_WORDS];
};

/* Reports a fault. Called by the port's fault handler on a stack with room for the link; reset the
 * stack pointer to the top first, since a full stack is a common cause. Sends the report and
 * answers every request with it until a reset. */
FWR_NORETURN void fwr_fault(const struct fwr_fault *fault);

/* With FWR_WATCHDOG: called by the handler of the interrupt before a watchdog reset, with the
 * core's registers. Saves them and restarts; the report is sent after the restart. */
FWR_NORETURN void fwr_watchdog_expired(const struct fwr_fault *fault);

#endif
