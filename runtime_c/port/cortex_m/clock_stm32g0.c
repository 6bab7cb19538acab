/* SPDX-License-Identifier: Apache-2.0 */
/* clock_stm32g0.c: PLL from the internal oscillator of the STM32G0, WB and WL series (RM0444,
 * RM0434, RM0453 and RM0461, chapters on flash and RCC), in voltage range 1, as after reset. The
 * reset clock is HSI, 16 MHz, on the G0, and MSI, 4 MHz, on the others.
 *
 * The series differ in addresses, and in the number and place of the clock switch.
 */
#include "cortex_m.h"

#define RCC_CR FWR_REG(FWR_CLOCK_RCC + 0x000u)
#define RCC_CFGR FWR_REG(FWR_CLOCK_RCC + 0x008u)
#define RCC_PLLCFGR FWR_REG(FWR_CLOCK_RCC + 0x00Cu)
#define RCC_EXTCFGR FWR_REG(FWR_CLOCK_RCC + 0x108u)
#define FLASH_ACR FWR_REG(FWR_CLOCK_FLASH)

#define CR_HSI_ON (1u << 8)
#define CR_HSI_READY (1u << 10)
#define CR_PLL_ON (1u << 24)
#define CR_PLL_READY (1u << 25)

#define PLLCFGR_SETTINGS \
    (2u | (FWR_CLOCK_PLL_M - 1u) << 4 | FWR_CLOCK_PLL_N << 8 | 1u << 28 | \
     (FWR_CLOCK_PLL_R - 1u) << 29) /* 2: from HSI */

#define CFGR_SWITCHED_MASK (FWR_CLOCK_SWITCH_MASK << FWR_CLOCK_SWITCHED_BIT)
#define CFGR_SWITCHED_PLL (FWR_CLOCK_SWITCH_PLL << FWR_CLOCK_SWITCHED_BIT)
#define EXTCFGR_CPU2_HALF (8u << 4)

#define ACR_WAITS_MASK 7u
#define ACR_PREFETCH_AND_CACHES (FWR_CLOCK_DATA_CACHE ? 7u << 8 : 3u << 8)

/* The register also holds whether the debugger may read the flash. */
static int slow_flash_down(void)
{
    FLASH_ACR = (FLASH_ACR & ~ACR_WAITS_MASK) | ACR_PREFETCH_AND_CACHES | FWR_CLOCK_FLASH_WAITS;
    return fwr_becomes(&FLASH_ACR, ACR_WAITS_MASK, FWR_CLOCK_FLASH_WAITS);
}

void fwr_clock_init(void)
{
    RCC_CR |= CR_HSI_ON;
    if (!fwr_becomes(&RCC_CR, CR_HSI_READY, CR_HSI_READY)) {
        return;
    }
    RCC_PLLCFGR = PLLCFGR_SETTINGS;
    RCC_CR |= CR_PLL_ON;
    if (!fwr_becomes(&RCC_CR, CR_PLL_READY, CR_PLL_READY)) {
        RCC_CR &= ~CR_PLL_ON;
        return;
    }
    if (!slow_flash_down()) {
        return;
    }
#if FWR_CLOCK_CPU2_HALF /* the second processor of the WB runs at 32 MHz at most */
    RCC_EXTCFGR |= EXTCFGR_CPU2_HALF;
#endif
    RCC_CFGR = (RCC_CFGR & ~FWR_CLOCK_SWITCH_MASK) | FWR_CLOCK_SWITCH_PLL;
    (void)fwr_becomes(&RCC_CFGR, CFGR_SWITCHED_MASK, CFGR_SWITCHED_PLL);
}

int fwr_clock_is_raised(void)
{
    return (RCC_CFGR & CFGR_SWITCHED_MASK) == CFGR_SWITCHED_PLL;
}
