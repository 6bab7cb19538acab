/* SPDX-License-Identifier: Apache-2.0 */
/* clock_stm32u5.c: PLL1 from the internal oscillator, and the flash cache, of the STM32U5 series
 * (RM0456, chapters 7, 8, 10 and 11). The reset clock is MSI, 4 MHz.
 */
#include "cortex_m.h"

#define RCC_CR FWR_REG(0x46020C00u)
#define RCC_CFGR1 FWR_REG(0x46020C1Cu)
#define RCC_PLL1CFGR FWR_REG(0x46020C28u)
#define RCC_PLL1DIVR FWR_REG(0x46020C34u)
#define RCC_AHB3ENR FWR_REG(0x46020C94u)
#define PWR_VOSR FWR_REG(0x4602080Cu)
#define FLASH_ACR FWR_REG(0x40022000u)
#define ICACHE_CR FWR_REG(0x40030400u)
#define ICACHE_SR FWR_REG(0x40030404u)

#define CR_HSI_ON (1u << 8)
#define CR_HSI_READY (1u << 10)
#define CR_PLL1_ON (1u << 24)
#define CR_PLL1_READY (1u << 25)

#define PLL1CFGR_FROM_HSI 2u
#define PLL1CFGR_RANGE(range) ((range) << 2)
#define PLL1CFGR_M(divider) (((divider) - 1u) << 8)
#define PLL1CFGR_R_ON (1u << 18) /* bits 12 to 15 stay 0: the booster uses the source undivided */
#define PLL1DIVR_SETTINGS \
    ((FWR_CLOCK_PLL_R - 1u) << 24 | 1u << 16 | 1u << 9 | (FWR_CLOCK_PLL_N - 1u))

#define CFGR1_SWITCH_PLL 3u
#define CFGR1_SWITCHED_MASK (3u << 2)
#define CFGR1_SWITCHED_PLL (3u << 2)

#define AHB3_POWER (1u << 2)
#define VOSR_RANGE_1 (3u << 16)
#define VOSR_READY (1u << 15)
#define VOSR_BOOST (1u << 18)
#define VOSR_BOOST_READY (1u << 14)

#define ACR_PREFETCH (1u << 8)
#define ICACHE_ON 1u
#define ICACHE_BUSY 1u

/* Voltage range 1, and the booster required above 55 MHz. */
static int raise_voltage(void)
{
    RCC_AHB3ENR |= AHB3_POWER;
    (void)RCC_AHB3ENR;
    PWR_VOSR = VOSR_RANGE_1;
    if (!fwr_becomes(&PWR_VOSR, VOSR_READY, VOSR_READY)) {
        return 0;
    }
    PWR_VOSR = VOSR_RANGE_1 | VOSR_BOOST;
    return fwr_becomes(&PWR_VOSR, VOSR_BOOST_READY, VOSR_BOOST_READY);
}

void fwr_clock_init(void)
{
    if (fwr_becomes(&ICACHE_SR, ICACHE_BUSY, 0)) {
        ICACHE_CR |= ICACHE_ON;
    }
    RCC_CR |= CR_HSI_ON;
    if (!fwr_becomes(&RCC_CR, CR_HSI_READY, CR_HSI_READY)) {
        return;
    }
    RCC_PLL1CFGR = PLL1CFGR_FROM_HSI | PLL1CFGR_RANGE(FWR_CLOCK_PLL_RANGE) |
                   PLL1CFGR_M(FWR_CLOCK_PLL_M) | PLL1CFGR_R_ON;
    RCC_PLL1DIVR = PLL1DIVR_SETTINGS;
    if (!raise_voltage()) {
        return;
    }
    RCC_CR |= CR_PLL1_ON;
    if (!fwr_becomes(&RCC_CR, CR_PLL1_READY, CR_PLL1_READY)) {
        RCC_CR &= ~CR_PLL1_ON;
        return;
    }
    FLASH_ACR = ACR_PREFETCH | FWR_CLOCK_FLASH_WAITS;
    if (!fwr_becomes(&FLASH_ACR, 0xFu, FWR_CLOCK_FLASH_WAITS)) {
        return;
    }
    RCC_CFGR1 |= CFGR1_SWITCH_PLL;
    (void)fwr_becomes(&RCC_CFGR1, CFGR1_SWITCHED_MASK, CFGR1_SWITCHED_PLL);
}

int fwr_clock_is_raised(void)
{
    return (RCC_CFGR1 & CFGR1_SWITCHED_MASK) == CFGR1_SWITCHED_PLL;
}
