/* SPDX-License-Identifier: Apache-2.0 */
/* startup.c: reset and traps of a 32-bit RISC-V hart in machine mode.
 *
 * The first instructions set the global, thread and stack pointers; then C copies .data, clears
 * .bss and calls main. Interrupts stay off; every trap ends in the fault report.
 */
#include "fwr_sections.h"
#include "riscv32.h"

#define PMP_LOCKED_NAPOT \
    0x98u /* locked, so it applies to machine mode: no read, write or execute */

#if !defined(FWR_TRAP_ALIGN)
#define FWR_TRAP_ALIGN 4
#endif

int main(void);

void fwr_start(void);
void fwr_reset(void);
void fwr_fault_report(const uint32_t *registers);

/* ---- Traps ---------------------------------------------------------------------------------- */

/* ra, sp and a0 to a5 at the trap, for the report. */
extern uint32_t fwr_trap_registers[8];
uint32_t fwr_trap_registers[8];

/* mtvec must be a multiple of four, or of the size of a core's table. The registers are saved to
 * static memory, since the stack may be the cause; the report then runs from the top of the stack.
 */
__attribute__((naked, aligned(FWR_TRAP_ALIGN))) static void trap_handler(void)
{
    __asm__ volatile(".option push\n\t"
                     ".option arch, +zicsr\n\t"
                     "csrw mscratch, t0\n\t"
                     ".option pop\n\t"
                     "la   t0, fwr_trap_registers\n\t"
                     "sw   ra, 0(t0)\n\t"
                     "sw   sp, 4(t0)\n\t"
                     "sw   a0, 8(t0)\n\t"
                     "sw   a1, 12(t0)\n\t"
                     "sw   a2, 16(t0)\n\t"
                     "sw   a3, 20(t0)\n\t"
                     "sw   a4, 24(t0)\n\t"
                     "sw   a5, 28(t0)\n\t"
                     "la   sp, fwr_ld_stack_high\n\t"
                     "mv   a0, t0\n\t"
                     "j    fwr_fault_report");
}

__attribute__((used)) void fwr_fault_report(const uint32_t *registers)
{
    struct fwr_fault fault;

    fault.family = FWR_FAULT_RISCV32;
    FWR_CSR_READ("mcause", fault.words[0]);
    FWR_CSR_READ("mepc", fault.words[1]);
    FWR_CSR_READ("mtval", fault.words[2]);
    FWR_CSR_READ("mstatus", fault.words[3]);
    for (uint32_t i = 0; i < 8; i++) {
        fault.words[4 + i] = registers[i];
    }
    fwr_fault(&fault);
}

/* ---- Reset ---------------------------------------------------------------------------------- */

/* Vector and float instructions are illegal until the fields VS and FS of mstatus are set.
 * Compilers may emit them for any loop, so they are set before the first C function. */
#if defined(__riscv_vector) && defined(__riscv_flen)
#define FWR_ENABLED_UNITS "0x2600"
#elif defined(__riscv_vector)
#define FWR_ENABLED_UNITS "0x600"
#elif defined(__riscv_flen)
#define FWR_ENABLED_UNITS "0x2000"
#endif
#ifdef FWR_ENABLED_UNITS
#define FWR_ENABLE_UNITS \
    "li   t0, " FWR_ENABLED_UNITS "\n\t" \
    ".option push\n\t" \
    ".option arch, +zicsr\n\t" \
    "csrs mstatus, t0\n\t" \
    ".option pop\n\t"
#else
#define FWR_ENABLE_UNITS
#endif

__attribute__((naked, section(".vectors"), used)) void fwr_start(void)
{
    __asm__ volatile(".option push\n\t"
                     ".option norelax\n\t"
                     "la   gp, __global_pointer$\n\t"
                     ".option pop\n\t"
                     "la   tp, fwr_ld_tls\n\t"
                     "la   sp, fwr_ld_stack_high\n\t" FWR_ENABLE_UNITS "j    fwr_reset");
}

/* A locked PMP entry without permissions blocks the unused addresses below the stack. */
static void guard_stack(void)
{
#if FWR_STACK_GUARD_BYTES > 0
    uint32_t low = (uint32_t)fwr_ld_stack_low - FWR_STACK_GUARD_BYTES;

    FWR_CSR_WRITE("pmpaddr0", low >> 2 | (FWR_STACK_GUARD_BYTES / 8u - 1u));
    FWR_CSR_WRITE("pmpcfg0", PMP_LOCKED_NAPOT);
#endif
}

__attribute__((used)) void fwr_reset(void)
{
    FWR_CSR_WRITE("mtvec", trap_handler);
    guard_stack();
    fwr_fill_sections();
    (void)main();
    fwr_port_fatal();
}
