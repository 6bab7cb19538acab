/* SPDX-License-Identifier: Apache-2.0 */
/* clock_fe310.c: crystal and PLL of SiFive's FE310-G002 (manual, chapter 6).
 *
 * The program runs from a serial flash clocked from the processor clock, so the flash divider is
 * set before the processor speeds up. The reset clock is a ring oscillator of about 13.8 MHz.
 */
#include "riscv32.h"

#define PRCI_CRYSTAL FWR_REG(0x10008004u)
#define PRCI_PLL FWR_REG(0x10008008u)
#define PRCI_PLL_OUT FWR_REG(0x1000800Cu)
#define QSPI_DIVIDER FWR_REG(0x10014000u)

#define CRYSTAL_ON (1u << 30)
#define CRYSTAL_READY (1u << 31)

#define PLL_R(divider) ((divider) - 1u)
#define PLL_F(times) (((times) / 2u - 1u) << 4)
#define PLL_Q(divider) (((divider) == 2u ? 1u : (divider) == 4u ? 2u : 3u) << 10)
#define PLL_SELECT (1u << 16)
#define PLL_FROM_CRYSTAL (1u << 17)
#define PLL_BYPASS (1u << 18)
#define PLL_LOCKED (1u << 31)
#define PLL_OUT_UNDIVIDED (1u << 8)

#define PLL_SETTINGS \
    (PLL_R(FWR_CLOCK_PLL_R) | PLL_F(FWR_CLOCK_PLL_F) | PLL_Q(FWR_CLOCK_PLL_Q) | PLL_FROM_CRYSTAL)

/* The lock flag is meaningless for the first 100 microseconds: 1,380 cycles of the slow clock. */
#define LOCK_DELAY_TURNS 1400u

static void delay(void)
{
    for (volatile uint32_t turn = 0; turn < LOCK_DELAY_TURNS; turn++) {}
}

void fwr_clock_init(void)
{
    PRCI_CRYSTAL |= CRYSTAL_ON;
    if (!fwr_becomes(&PRCI_CRYSTAL, CRYSTAL_READY, CRYSTAL_READY)) {
        return;
    }
    PRCI_PLL = PLL_SETTINGS | PLL_BYPASS;
    PRCI_PLL_OUT = PLL_OUT_UNDIVIDED;
    PRCI_PLL = PLL_SETTINGS;
    delay();
    if (!fwr_becomes(&PRCI_PLL, PLL_LOCKED, PLL_LOCKED)) {
        return;
    }
    QSPI_DIVIDER = FWR_CLOCK_FLASH_HALF_DIVIDER - 1u;
    PRCI_PLL = PLL_SETTINGS | PLL_SELECT;
}

int fwr_clock_is_raised(void)
{
    return (PRCI_PLL & PLL_SELECT) != 0;
}
