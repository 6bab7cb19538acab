/* SPDX-License-Identifier: Apache-2.0 */
/* start_riscv32.c: the bootloader's first instructions on a 32-bit RISC-V, and the jump to the
 * application.
 */
#include "fwr_bootloader.h"
#include "fwr_words.h"
#include "riscv32.h"

int main(void);

void fwr_start(void);
void fwr_reset(void);

__attribute__((naked, section(".vectors"), used)) void fwr_start(void)
{
    __asm__ volatile(".option push\n\t"
                     ".option norelax\n\t"
                     "la   gp, __global_pointer$\n\t"
                     ".option pop\n\t"
                     "la   sp, fwr_ld_stack_high\n\t"
                     "j    fwr_reset");
}

/* A trap restarts the bootloader. */
__attribute__((used)) void fwr_reset(void)
{
    FWR_CSR_WRITE("mtvec", fwr_start);
    fwr_words_clear(fwr_ld_bss_start, fwr_ld_bss_end);
    (void)main();
}

void fwr_bootloader_leave(uint32_t entry)
{
    __asm__ volatile(".option push\n\t"
                     ".option arch, +zifencei\n\t"
                     "fence.i\n\t"
                     ".option pop\n\t"
                     "jr %0" ::"r"(entry)
                     : "memory");
    __builtin_unreachable();
}
