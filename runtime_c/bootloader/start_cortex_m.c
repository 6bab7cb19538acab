/* SPDX-License-Identifier: Apache-2.0 */
/* start_cortex_m.c: the bootloader's vectors and reset on a Cortex-M, and the jump to the
 * application.
 *
 * On cores that cannot move the vector table (Cortex-M0), these vectors stay in force and forward
 * each exception to the running application. A fault of the bootloader restarts the chip.
 */
#include "cortex_m.h"
#include "fwr_bootloader.h"
#include "fwr_handoff.h"
#include "fwr_words.h"

int main(void);

void fwr_reset_handler(void);
static void lead(void);

#if defined(__ARM_ARCH_6M__)
#define EXCEPTIONS 48u /* 32 of them interrupts */
#else
#define EXCEPTIONS 16u
#endif

struct vectors {
    const void *stack;
    void (*reset)(void);
    void (*handlers[EXCEPTIONS - 2u])(void);
};

__attribute__((section(".vectors"), used)) static const struct vectors vectors = {
    fwr_ld_stack_high,
    fwr_reset_handler,
    {
#define LEAD_8 lead, lead, lead, lead, lead, lead, lead, lead
#if defined(__ARM_ARCH_6M__)
        LEAD_8, LEAD_8, LEAD_8, LEAD_8,
#endif
        LEAD_8, lead, lead, lead, lead, lead, lead},
};

void fwr_reset_handler(void)
{
    fwr_words_clear(fwr_ld_bss_start, fwr_ld_bss_end);
    (void)main();
}

__attribute__((used)) static void restart(void)
{
    SCB_AIRCR = SCB_AIRCR_SYSRESETREQ;
    for (;;) {}
}

/* r0 to r3 are already on the stack, and lr holds the return code. */
__attribute__((naked)) static void lead(void)
{
    __asm__ volatile("ldr  r1, =%c0\n\t"
                     "ldr  r1, [r1]\n\t"
                     "cmp  r1, #0\n\t"
                     "beq  1f\n\t"
                     "mrs  r0, ipsr\n\t"
                     "lsl  r0, r0, #2\n\t"
                     "ldr  r1, [r1, r0]\n\t"
                     "bx   r1\n\t"
                     "1:\n\t"
                     "ldr  r1, =restart\n\t"
                     "bx   r1\n\t"
                     ".ltorg" ::"i"(FWR_HANDOFF + 4u));
}

void fwr_bootloader_leave(uint32_t entry)
{
    const uint32_t *table = (const uint32_t *)entry;

#if !defined(__ARM_ARCH_6M__)
    SCB_VTOR = entry;
#endif
    __asm__ volatile("dsb\n\tisb\n\tmsr msp, %0\n\tmov lr, %1\n\tbx lr" ::"r"(table[0]),
                     "r"(table[1])
                     : "memory");
    __builtin_unreachable();
}
