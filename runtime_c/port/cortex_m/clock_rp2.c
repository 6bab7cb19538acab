/* SPDX-License-Identifier: Apache-2.0 */
/* clock_rp2.c: crystal and system PLL of RP2040 and RP2350 (RP2040 data sheet, 2.15 to 2.18; RP2350
 * data sheet, 8.1 to 8.6). The reset clock is a ring oscillator of a few megahertz.
 */
#include "rp2.h"

#define CLOCKS_REF_CONTROL FWR_REG(RP2_CLOCKS + 0x30u)
#define CLOCKS_REF_SELECTED FWR_REG(RP2_CLOCKS + 0x38u)
#define CLOCKS_SYS_CONTROL FWR_REG(RP2_CLOCKS + 0x3Cu)
#define CLOCKS_SYS_SELECTED FWR_REG(RP2_CLOCKS + 0x44u)
#define REF_FROM_CRYSTAL 2u
#define REF_SELECTED_CRYSTAL (1u << 2)
#define SYS_FROM_PLL 1u /* the auxiliary source, which defaults to the system PLL */
#define SYS_SELECTED_REF (1u << 0)
#define SYS_SELECTED_PLL (1u << 1)

#define XOSC_CONTROL FWR_REG(RP2_XOSC + 0x00u)
#define XOSC_STATUS FWR_REG(RP2_XOSC + 0x04u)
#define XOSC_START_UP FWR_REG(RP2_XOSC + 0x0Cu)
#define XOSC_ON_1_TO_15_MHZ (0xFABu << 12 | 0xAA0u)
#define XOSC_STABLE (1u << 31)

#define PLL_STATUS FWR_REG(RP2_PLL + 0x00u)
#define PLL_POWER FWR_REG(RP2_PLL + 0x04u)
#define PLL_POWER_CLEAR FWR_REG(RP2_PLL + RP2_CLEAR + 0x04u)
#define PLL_FEEDBACK FWR_REG(RP2_PLL + 0x08u)
#define PLL_DIVIDERS FWR_REG(RP2_PLL + 0x0Cu)
#define PLL_LOCKED (1u << 31)
#define PLL_DOWN (1u << 0)
#define PLL_DIVIDERS_DOWN (1u << 3)
#define PLL_OSCILLATOR_DOWN (1u << 5)

static int start_pll(void)
{
    if (!fwr_rp2_wake(RP2_RESET_PLL)) {
        return 0;
    }
    PLL_STATUS = 1; /* the crystal is not divided */
    PLL_FEEDBACK = FWR_CLOCK_PLL_FEEDBACK;
    PLL_POWER_CLEAR = PLL_DOWN | PLL_OSCILLATOR_DOWN;
    if (!fwr_becomes(&PLL_STATUS, PLL_LOCKED, PLL_LOCKED)) {
        return 0;
    }
    PLL_DIVIDERS = FWR_CLOCK_PLL_FIRST << 16 | FWR_CLOCK_PLL_SECOND << 12;
    PLL_POWER_CLEAR = PLL_DIVIDERS_DOWN;
    return 1;
}

/* Change an auxiliary source only while the primary one is selected. */
void fwr_clock_init(void)
{
    XOSC_START_UP = FWR_CLOCK_CRYSTAL_DELAY;
    XOSC_CONTROL = XOSC_ON_1_TO_15_MHZ;
    if (!fwr_becomes(&XOSC_STATUS, XOSC_STABLE, XOSC_STABLE)) {
        return;
    }
    CLOCKS_SYS_CONTROL = 0;
    if (!fwr_becomes(&CLOCKS_SYS_SELECTED, SYS_SELECTED_REF, SYS_SELECTED_REF)) {
        return;
    }
    CLOCKS_REF_CONTROL = REF_FROM_CRYSTAL;
    if (!fwr_becomes(&CLOCKS_REF_SELECTED, REF_SELECTED_CRYSTAL, REF_SELECTED_CRYSTAL) ||
        !start_pll()) {
        return;
    }
    CLOCKS_SYS_CONTROL = SYS_FROM_PLL;
    (void)fwr_becomes(&CLOCKS_SYS_SELECTED, SYS_SELECTED_PLL, SYS_SELECTED_PLL);
}

int fwr_clock_is_raised(void)
{
    return (CLOCKS_SYS_SELECTED & SYS_SELECTED_PLL) != 0;
}
