/* SPDX-License-Identifier: Apache-2.0 */
/* startup.c: reset and exceptions of a Cortex-R of Armv7 (R4F, R5F) in Arm and Thumb state.
 *
 * The vectors are in Arm state, as after a reset. The first instructions enable the FPU and set the
 * stack pointer of the System mode, in which everything runs; then C copies .data, clears .bss and
 * calls main. Interrupts stay off; every exception ends in the fault report.
 */
#include "cortex_r.h"
#include "fwr_sections.h"

#define SCTLR_MPU (1u << 0 | 1u << 17) /* the MPU, with the default map as background */
#define SCTLR_THUMB_EXCEPTIONS (1u << 30)
#define NO_ACCESS (1u << 12) /* nor execution */
#define SPSR_THUMB (1u << 5)

int main(void);

void fwr_reset(void);
void fwr_fault_report(uint32_t vector, uint32_t link, uint32_t state, const uint32_t *registers);

/* sp, lr and r0 to r3 at the exception, for the report. */
extern uint32_t fwr_trap_registers[6];
uint32_t fwr_trap_registers[6];

/* An exception has a stack pointer of its own, which is free to address the saved registers. The
 * stack may be the cause: the report runs from its top. */
__asm__(".section .vectors, \"ax\"\n\t"
        ".syntax unified\n\t"
        ".arm\n\t"
        ".globl fwr_start\n"
        "fwr_start:\n\t"
        "b     .Lstart\n\t"
        "b     .Lundefined\n\t"
        "b     .Lcall\n\t"
        "b     .Lprefetch\n\t"
        "b     .Ldata\n\t"
        "b     .\n\t"
        "b     .\n\t"
        "b     .\n"
        ".macro exception number\n\t"
        "ldr   sp, =fwr_trap_registers + 8\n\t"
        "stmia sp, {r0-r3}\n\t"
        "mov   r0, #\\number\n\t"
        "b     .Lreport\n\t"
        ".endm\n"
        ".Lundefined: exception 1\n"
        ".Lcall: exception 2\n"
        ".Lprefetch: exception 3\n"
        ".Ldata: exception 4\n"
        ".Lreport:\n\t"
        "mov   r1, lr\n\t"
        "mrs   r2, spsr\n\t"
        "ldr   r3, =fwr_trap_registers\n\t"
        "cps   #31\n\t"
        "str   sp, [r3]\n\t"
        "str   lr, [r3, #4]\n\t"
        "ldr   sp, =fwr_ld_stack_high\n\t"
        "ldr   r12, =fwr_fault_report\n\t"
        "bx    r12\n"
        ".Lstart:\n\t"
        "cpsid aif, #31\n\t"
        "mrc   p15, 0, r0, c1, c0, 2\n\t" /* access to the FPU */
        "orr   r0, r0, #0xF00000\n\t"
        "mcr   p15, 0, r0, c1, c0, 2\n\t"
        "isb\n\t"
        "mov   r0, #0x40000000\n\t"
        "vmsr  fpexc, r0\n\t"
        "ldr   sp, =fwr_ld_stack_high\n\t"
        "ldr   r12, =fwr_reset\n\t"
        "bx    r12\n\t"
        ".ltorg\n\t"
        ".thumb\n\t"
        ".previous");

__attribute__((used)) void fwr_fault_report(uint32_t vector, uint32_t link, uint32_t state,
                                            const uint32_t *registers)
{
    /* The distance from the instruction to the link, by vector; in Thumb state, the link of an
     * undefined instruction or a call is closer by 2. */
    static const uint8_t distances[] = {0, 4, 4, 4, 8};
    const uint32_t closer = vector < 3u && (state & SPSR_THUMB) != 0 ? 2u : 0u;
    struct fwr_fault fault;

    fault.family = FWR_FAULT_CORTEX_R;
    fault.words[0] = vector;
    fault.words[1] = link - distances[vector] + closer;
    fault.words[2] = state;
    CP15_READ(CP15_DFSR, fault.words[3]);
    CP15_READ(CP15_DFAR, fault.words[4]);
    CP15_READ(CP15_IFSR, fault.words[5]);
    for (uint32_t i = 0; i < 6; i++) {
        fault.words[6 + i] = registers[i];
    }
    fwr_fault(&fault);
}

/* A region of the MPU without access blocks the unused addresses below the stack. */
static void guard_stack(void)
{
#if FWR_STACK_GUARD_BYTES > 0
    uint32_t control = 0;
    uint32_t size = 0;

    while (2u << size < FWR_STACK_GUARD_BYTES) {
        size++;
    }
    CP15_WRITE(CP15_RGNR, 0u);
    CP15_WRITE(CP15_DRBAR, (uint32_t)fwr_ld_stack_low - FWR_STACK_GUARD_BYTES);
    CP15_WRITE(CP15_DRACR, NO_ACCESS);
    CP15_WRITE(CP15_DRSR, size << 1 | 1u);
    CP15_READ(CP15_SCTLR, control);
    CP15_WRITE(CP15_SCTLR, (control | SCTLR_MPU) & ~SCTLR_THUMB_EXCEPTIONS);
#endif
}

__attribute__((used)) void fwr_reset(void)
{
    guard_stack();
    fwr_fill_sections();
    (void)main();
    fwr_port_fatal();
}
