/* SPDX-License-Identifier: Apache-2.0 */
/* startup.c: reset and exceptions of an Xtensa core with the call0 ABI.
 *
 * The first instructions set the base of the vectors, the stack pointer and the processor state;
 * then C copies .data, clears .bss and calls main. Interrupts stay off; every exception ends in the
 * fault report.
 *
 * The stack is at the bottom of RAM: an overflow accesses addresses without memory, which faults.
 */
#include "fwr_sections.h"
#include "xtensa.h"

int main(void);

void fwr_reset(void);
void fwr_fault_report(const uint32_t *registers);

/* ---- Exceptions ----------------------------------------------------------------------------- */

/* a0 to a7 at the exception, for the report. */
extern uint32_t fwr_trap_registers[8];
uint32_t fwr_trap_registers[8];

/* An exception continues at a multiple of 16 bytes behind the base of the vectors, by its kind. The
 * registers are saved to static memory, since the stack may be the cause; the report then runs from
 * the top of the stack. Addresses are words before the code that loads them, behind a jump, since
 * execution starts at the first byte. */
__asm__(".section .vectors, \"ax\"\n\t"
        ".globl fwr_start\n"
        "fwr_start:\n\t"
        "j     .Lstart\n\t"
        ".balign 4\n"
        ".Lregisters: .word fwr_trap_registers\n"
        ".Lstack: .word fwr_ld_stack_high\n"
        ".Lreport: .word fwr_fault_report\n"
        ".Lreset: .word fwr_reset\n"
        ".Lbase: .word .Lvectors\n\t"
        ".balign 256\n"
        ".Lvectors:\n\t"
        ".rept 8\n\t"
        ".balign 16\n\t"
        "wsr   a0, excsave1\n\t"
        "j     .Ltrap\n\t"
        ".endr\n"
        ".Ltrap:\n\t"
        "l32r  a0, .Lregisters\n\t"
        "s32i  a1, a0, 4\n\t"
        "s32i  a2, a0, 8\n\t"
        "s32i  a3, a0, 12\n\t"
        "s32i  a4, a0, 16\n\t"
        "s32i  a5, a0, 20\n\t"
        "s32i  a6, a0, 24\n\t"
        "s32i  a7, a0, 28\n\t"
        "mov   a2, a0\n\t"
        "rsr   a0, excsave1\n\t"
        "s32i  a0, a2, 0\n\t"
        "l32r  a1, .Lstack\n\t"
        "l32r  a0, .Lreport\n\t"
        "jx    a0\n"
        /* Out of the reset's exception mode, in which a further exception is a double one, with all
         * interrupts masked. */
        ".Lstart:\n\t"
        "l32r  a0, .Lbase\n\t"
        "wsr   a0, vecbase\n\t"
        "movi  a0, 15\n\t"
        "wsr   a0, ps\n\t"
        "rsync\n\t"
        "l32r  a1, .Lstack\n\t"
        "l32r  a0, .Lreset\n\t"
        "jx    a0\n\t"
        ".previous");

__attribute__((used)) void fwr_fault_report(const uint32_t *registers)
{
    struct fwr_fault fault;

    fault.family = FWR_FAULT_XTENSA;
    FWR_SPECIAL_READ("exccause", fault.words[0]);
    FWR_SPECIAL_READ("epc1", fault.words[1]);
    FWR_SPECIAL_READ("excvaddr", fault.words[2]);
    FWR_SPECIAL_READ("ps", fault.words[3]);
    for (uint32_t i = 0; i < 8; i++) {
        fault.words[4 + i] = registers[i];
    }
    fwr_fault(&fault);
}

/* ---- Reset ---------------------------------------------------------------------------------- */

__attribute__((used)) void fwr_reset(void)
{
    fwr_fill_sections();
    (void)main();
    fwr_port_fatal();
}
