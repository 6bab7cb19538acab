/* SPDX-License-Identifier: Apache-2.0 */
/* clock_stm32h5.c: PLL1 from the internal oscillator, and the instruction cache, of the STM32H5
 * series (RM0481, chapters on flash, ICACHE, PWR and RCC). The reset clock is HSI divided by 2,
 * 32 MHz, which is also the source of the PLL.
 */
#include "cortex_m.h"

#define RCC_CR FWR_REG(0x44020C00u)
#define RCC_CFGR1 FWR_REG(0x44020C1Cu)
#define RCC_PLL1CFGR FWR_REG(0x44020C28u)
#define RCC_PLL1DIVR FWR_REG(0x44020C34u)
#define PWR_VOSCR FWR_REG(0x44020810u)
#define PWR_VOSSR FWR_REG(0x44020814u)
#define FLASH_ACR FWR_REG(0x40022000u)
#define ICACHE_CR FWR_REG(0x40030400u)
#define ICACHE_SR FWR_REG(0x40030404u)

#define CR_PLL1_ON (1u << 24)
#define CR_PLL1_READY (1u << 25)

#define PLL1CFGR_SETTINGS \
    (1u | FWR_CLOCK_PLL_RANGE << 2 | FWR_CLOCK_PLL_M << 8 | 1u << 16) /* 1: from HSI; P on */
#define PLL1DIVR_SETTINGS \
    (1u << 24 | 1u << 16 | (FWR_CLOCK_PLL_P - 1u) << 9 | (FWR_CLOCK_PLL_N - 1u))

#define CFGR1_SWITCH_PLL1 3u
#define CFGR1_SWITCHED_MASK (7u << 3)
#define CFGR1_SWITCHED_PLL1 (3u << 3)

#define VOSCR_SCALE_0 (3u << 4)
#define VOSSR_READY (1u << 3)
#define ACR_PREFETCH (1u << 8)
#define ICACHE_ON 1u
#define ICACHE_BUSY 1u

void fwr_clock_init(void)
{
    if (fwr_becomes(&ICACHE_SR, ICACHE_BUSY, 0)) {
        ICACHE_CR |= ICACHE_ON;
    }
    PWR_VOSCR = VOSCR_SCALE_0;
    if (!fwr_becomes(&PWR_VOSSR, VOSSR_READY, VOSSR_READY)) {
        return;
    }
    RCC_PLL1CFGR = PLL1CFGR_SETTINGS;
    RCC_PLL1DIVR = PLL1DIVR_SETTINGS;
    RCC_CR |= CR_PLL1_ON;
    if (!fwr_becomes(&RCC_CR, CR_PLL1_READY, CR_PLL1_READY)) {
        RCC_CR &= ~CR_PLL1_ON;
        return;
    }
    FLASH_ACR = ACR_PREFETCH | FWR_CLOCK_FLASH_DELAY << 4 | FWR_CLOCK_FLASH_WAITS;
    if (!fwr_becomes(&FLASH_ACR, 0xFu, FWR_CLOCK_FLASH_WAITS)) {
        return;
    }
    RCC_CFGR1 |= CFGR1_SWITCH_PLL1;
    (void)fwr_becomes(&RCC_CFGR1, CFGR1_SWITCHED_MASK, CFGR1_SWITCHED_PLL1);
}

int fwr_clock_is_raised(void)
{
    return (RCC_CFGR1 & CFGR1_SWITCHED_MASK) == CFGR1_SWITCHED_PLL1;
}
