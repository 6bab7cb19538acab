/* SPDX-License-Identifier: Apache-2.0 */
/* clock_stm32h7.c: PLL1 from the internal oscillator of the STM32H743 series (RM0433, chapters 4, 6
 * and 8), with the linear regulator at scale 1. The reset clock is HSI, 64 MHz.
 */
#include "cortex_m.h"

#define RCC_CR FWR_REG(0x58024400u)
#define RCC_CFGR FWR_REG(0x58024410u)
#define RCC_D1CFGR FWR_REG(0x58024418u)
#define RCC_D2CFGR FWR_REG(0x5802441Cu)
#define RCC_D3CFGR FWR_REG(0x58024420u)
#define RCC_PLLCKSELR FWR_REG(0x58024428u)
#define RCC_PLLCFGR FWR_REG(0x5802442Cu)
#define RCC_PLL1DIVR FWR_REG(0x58024430u)
#define FLASH_ACR FWR_REG(0x52002000u)
#define PWR_CSR1 FWR_REG(0x58024804u)
#define PWR_CR3 FWR_REG(0x5802480Cu)
#define PWR_D3CR FWR_REG(0x58024818u)

#define CR_PLL1_ON (1u << 24)
#define CR_PLL1_READY (1u << 25)

#define PLLCKSELR_M1(divider) ((divider) << 4) /* source HSI: bits 0 and 1 stay 0 */
#define PLLCFGR_INPUT_8_TO_16_MHZ (3u << 2)
#define PLLCFGR_P1_ON (1u << 16)
#define PLL1DIVR_SETTINGS \
    (1u << 24 | 1u << 16 | (FWR_CLOCK_PLL_P - 1u) << 9 | (FWR_CLOCK_PLL_N - 1u))

#define CFGR_SWITCH_PLL1 3u
#define CFGR_SWITCHED_MASK (7u << 3)
#define CFGR_SWITCHED_PLL1 (3u << 3)
#define AHB(divider) ((divider) == 1u ? 0u : 8u)
#define APB(divider) ((divider) == 1u ? 0u : 4u)

#define CR3_SUPPLY_MASK 7u
#define CR3_LINEAR_REGULATOR 2u
#define CSR1_SUPPLY_READY (1u << 13)
#define D3CR_SCALE_1 (3u << 14)
#define D3CR_SCALE_READY (1u << 13)

static int raise_voltage(void)
{
    PWR_CR3 = (PWR_CR3 & ~CR3_SUPPLY_MASK) | CR3_LINEAR_REGULATOR;
    if (!fwr_becomes(&PWR_CSR1, CSR1_SUPPLY_READY, CSR1_SUPPLY_READY)) {
        return 0;
    }
    PWR_D3CR |= D3CR_SCALE_1;
    return fwr_becomes(&PWR_D3CR, D3CR_SCALE_READY, D3CR_SCALE_READY);
}

void fwr_clock_init(void)
{
    if (!raise_voltage()) {
        return;
    }
    RCC_PLLCKSELR = PLLCKSELR_M1(FWR_CLOCK_PLL_M);
    RCC_PLLCFGR = PLLCFGR_INPUT_8_TO_16_MHZ | PLLCFGR_P1_ON;
    RCC_PLL1DIVR = PLL1DIVR_SETTINGS;
    RCC_CR |= CR_PLL1_ON;
    if (!fwr_becomes(&RCC_CR, CR_PLL1_READY, CR_PLL1_READY)) {
        RCC_CR &= ~CR_PLL1_ON;
        return;
    }
    FLASH_ACR = FWR_CLOCK_FLASH_DELAY << 4 | FWR_CLOCK_FLASH_WAITS;
    if (!fwr_becomes(&FLASH_ACR, 0xFu, FWR_CLOCK_FLASH_WAITS)) {
        return;
    }
    RCC_D1CFGR = APB(FWR_CLOCK_APB_OF_AHB) << 4 | AHB(FWR_CLOCK_AHB_DIVIDER);
    RCC_D2CFGR = APB(FWR_CLOCK_APB_OF_AHB) << 8 | APB(FWR_CLOCK_APB_OF_AHB) << 4;
    RCC_D3CFGR = APB(FWR_CLOCK_APB_OF_AHB) << 4;
    RCC_CFGR |= CFGR_SWITCH_PLL1;
    (void)fwr_becomes(&RCC_CFGR, CFGR_SWITCHED_MASK, CFGR_SWITCHED_PLL1);
}

int fwr_clock_is_raised(void)
{
    return (RCC_CFGR & CFGR_SWITCHED_MASK) == CFGR_SWITCHED_PLL1;
}
