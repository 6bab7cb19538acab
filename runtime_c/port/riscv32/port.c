/* SPDX-License-Identifier: Apache-2.0 */
/* port.c: restart and stop of a 32-bit RISC-V; bring_up.c and the drivers define the rest. */
#include "riscv32.h"

/* RISC-V does not define a reset. If the chip's own has no effect, as in an emulator, start the
 * firmware again. */
void fwr_port_reset(void)
{
    static const struct fwr_write words[] = FWR_RESET_WRITES;

    for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        FWR_REG(words[i].address) = words[i].word;
    }
    for (volatile uint32_t turn = 0; turn < FWR_WAIT_TURNS; turn++) {}
    __asm__ volatile("la t0, fwr_start\n\tjr t0");
    __builtin_unreachable();
}

void fwr_port_fatal(void)
{
    for (;;) {
        __asm__ volatile("wfi");
    }
}
