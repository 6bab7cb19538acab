/* SPDX-License-Identifier: Apache-2.0 */
/* clock_stm32f1.c: PLL of the STM32F0, F1 and F3 series, from the crystal or from half of the
 * internal oscillator (RM0008 and RM0041, chapters 3 and 6; RM0091, RM0360, RM0316).
 *
 * Up to 24 MHz, the limit of the F100, flash wait states and bus dividers are not needed. The
 * result is read from the chip, so no RAM is needed. Emulators may lack the clock tree: its flags
 * are never set there, and the reset clock (HSI, 8 MHz) remains.
 */
#include "cortex_m.h"

#define RCC_CR FWR_REG(0x40021000u)
#define RCC_CFGR FWR_REG(0x40021004u)
#define FLASH_ACR FWR_REG(0x40022000u)

#define CR_HSE_ON (1u << 16)
#define CR_HSE_READY (1u << 17)
#define CR_PLL_ON (1u << 24)
#define CR_PLL_READY (1u << 25)

#define CFGR_SWITCH_MASK 3u
#define CFGR_SWITCH_PLL 2u
#define CFGR_SWITCHED_MASK (3u << 2)
#define CFGR_SWITCHED_PLL (2u << 2)
#define CFGR_PLL_FROM_HSE (FWR_CLOCK_FROM_CRYSTAL << 16)
#define CFGR_PLL_MULTIPLIER(times) (((times) - 2u) << 18)

#if defined(FWR_CLOCK_FLASH_WAITS) /* all but the F100 */
#define ACR_PREFETCH (1u << 4)
#define CFGR_APB1_DIVIDER ((FWR_CLOCK_APB1_DIVIDER == 2u ? 4u : 0u) << 8)
#else
#define CFGR_APB1_DIVIDER 0u
#endif

static int start_source(void)
{
#if FWR_CLOCK_FROM_CRYSTAL
    RCC_CR |= CR_HSE_ON;
    return fwr_becomes(&RCC_CR, CR_HSE_READY, CR_HSE_READY);
#else
    return 1; /* HSI runs from reset on */
#endif
}

void fwr_clock_init(void)
{
    if (!start_source()) {
        RCC_CR &= ~CR_HSE_ON;
        return;
    }
    RCC_CFGR =
        CFGR_PLL_FROM_HSE | CFGR_PLL_MULTIPLIER(FWR_CLOCK_PLL_MULTIPLIER) | CFGR_APB1_DIVIDER;
    RCC_CR |= CR_PLL_ON;
    if (!fwr_becomes(&RCC_CR, CR_PLL_READY, CR_PLL_READY)) {
        RCC_CR &= ~(CR_PLL_ON | CR_HSE_ON);
        return;
    }
#if defined(FWR_CLOCK_FLASH_WAITS)
    FLASH_ACR = ACR_PREFETCH | FWR_CLOCK_FLASH_WAITS;
#endif
    RCC_CFGR = (RCC_CFGR & ~CFGR_SWITCH_MASK) | CFGR_SWITCH_PLL;
    (void)fwr_becomes(&RCC_CFGR, CFGR_SWITCHED_MASK, CFGR_SWITCHED_PLL);
}

int fwr_clock_is_raised(void)
{
    return (RCC_CFGR & CFGR_SWITCHED_MASK) == CFGR_SWITCHED_PLL;
}
