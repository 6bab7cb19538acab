/* SPDX-License-Identifier: Apache-2.0 */
/* port.c: restart, stop and identity of a 32-bit RISC-V; bring_up.c and the drivers define the
 * rest. */
#include "riscv32.h"

/* RISC-V does not define a reset. If the chip's own has no effect, as in an emulator, start the
 * firmware again. */
void fwr_port_reset(void)
{
    static const struct fwr_write words[] = FWR_RESET_WRITES;

    fwr_write_all(words, sizeof(words) / sizeof(words[0]));
    for (volatile uint32_t turn = 0; turn < FWR_WAIT_TURNS; turn++) {}
    __asm__ volatile("la t0, fwr_start\n\tjr t0");
    __builtin_unreachable();
}

uint32_t fwr_port_identity(uint32_t *words)
{
    uint32_t count = 3;
    FWR_CSR_READ("mvendorid", words[0]);
    FWR_CSR_READ("marchid", words[1]);
    FWR_CSR_READ("mimpid", words[2]);
#if defined(FWR_CHIP_ID)
    words[count++] = FWR_REG(FWR_CHIP_ID);
#endif
    return count;
}

void fwr_port_fatal(void)
{
    for (;;) {
        __asm__ volatile("wfi");
    }
}
