/* SPDX-License-Identifier: Apache-2.0 */
/* clock_stm32l4.c: PLL from the internal oscillator of the STM32L4, L4+ and G4 series (RM0351,
 * RM0394 and RM0432, chapters 3, 5 and 6; RM0440, chapters 3, 6 and 7). The reset clock is MSI,
 * 4 MHz, on the G4 HSI, 16 MHz.
 */
#include "cortex_m.h"

#define RCC_CR FWR_REG(0x40021000u)
#define RCC_CFGR FWR_REG(0x40021008u)
#define RCC_PLLCFGR FWR_REG(0x4002100Cu)
#define RCC_APB1ENR1 FWR_REG(0x40021058u)
#define FLASH_ACR FWR_REG(0x40022000u)
#define PWR_SR2 FWR_REG(0x40007014u)
#define PWR_CR5 FWR_REG(0x40007080u)

#define CR_HSI_ON (1u << 8)
#define CR_HSI_READY (1u << 10)
#define CR_PLL_ON (1u << 24)
#define CR_PLL_READY (1u << 25)

#define PLLCFGR_FROM_HSI 2u
#define PLLCFGR_M(divider) (((divider) - 1u) << 4)
#define PLLCFGR_N(times) ((times) << 8)
#define PLLCFGR_R_ON (1u << 24)
#define PLLCFGR_R(divider) (((divider) / 2u - 1u) << 25)

#define CFGR_SWITCH_PLL 3u
#define CFGR_SWITCHED_MASK (3u << 2)
#define CFGR_SWITCHED_PLL (3u << 2)
#define CFGR_AHB_HALF (8u << 4)

#define ACR_PREFETCH_AND_CACHES (7u << 8)
#define APB1_POWER (1u << 28)
#define CR5_NOT_BOOSTED (1u << 8)
#define SR2_VOLTAGE_CHANGES (1u << 10)

#define MICROSECOND_TURNS 120u

static int boost(void)
{
#if FWR_CLOCK_BOOST
    RCC_APB1ENR1 |= APB1_POWER;
    (void)RCC_APB1ENR1;
    PWR_CR5 &= ~CR5_NOT_BOOSTED;
    return fwr_becomes(&PWR_SR2, SR2_VOLTAGE_CHANGES, 0);
#else
    return 1;
#endif
}

void fwr_clock_init(void)
{
    RCC_CR |= CR_HSI_ON;
    if (!boost() || !fwr_becomes(&RCC_CR, CR_HSI_READY, CR_HSI_READY)) {
        return;
    }
    RCC_PLLCFGR = PLLCFGR_FROM_HSI | PLLCFGR_M(FWR_CLOCK_PLL_M) | PLLCFGR_N(FWR_CLOCK_PLL_N) |
                  PLLCFGR_R(FWR_CLOCK_PLL_R) | PLLCFGR_R_ON;
    RCC_CR |= CR_PLL_ON;
    if (!fwr_becomes(&RCC_CR, CR_PLL_READY, CR_PLL_READY)) {
        RCC_CR &= ~CR_PLL_ON;
        return;
    }
    FLASH_ACR = ACR_PREFETCH_AND_CACHES | FWR_CLOCK_FLASH_WAITS;
    if (!fwr_becomes(&FLASH_ACR, 0xFu, FWR_CLOCK_FLASH_WAITS)) {
        return;
    }
    /* With boost the bus must first run at half speed for a microsecond. */
    RCC_CFGR = CFGR_AHB_HALF | CFGR_SWITCH_PLL;
    (void)fwr_becomes(&RCC_CFGR, CFGR_SWITCHED_MASK, CFGR_SWITCHED_PLL);
    for (volatile uint32_t turn = 0; turn < MICROSECOND_TURNS; turn++) {}
    RCC_CFGR &= ~CFGR_AHB_HALF;
}

int fwr_clock_is_raised(void)
{
    return (RCC_CFGR & CFGR_SWITCHED_MASK) == CFGR_SWITCHED_PLL;
}
