/* SPDX-License-Identifier: Apache-2.0 */
/* clock_stm32f4.c: PLL, from the crystal or the internal oscillator, and flash of the STM32F4 and
 * F7 series (RM0090, chapters 3, 5 and 6; RM0368, RM0383 and RM0390, chapters 3, 5 and 6; RM0385,
 * chapters 3, 4 and 5).
 *
 * The F7 has the F4's registers at the same addresses. The fastest clocks need over-drive. After
 * reset the regulator is at scale 1, except on the F411. The reset clock is HSI, 16 MHz.
 */
#include "cortex_m.h"

#define RCC_CR FWR_REG(0x40023800u)
#define RCC_PLLCFGR FWR_REG(0x40023804u)
#define RCC_CFGR FWR_REG(0x40023808u)
#define RCC_APB1ENR FWR_REG(0x40023840u)
#define FLASH_ACR FWR_REG(0x40023C00u)
#define PWR_CR FWR_REG(0x40007000u)
#define PWR_CSR FWR_REG(0x40007004u)

#define CR_HSE_ON (1u << 16)
#define CR_HSE_READY (1u << 17)
#define CR_PLL_ON (1u << 24)
#define CR_PLL_READY (1u << 25)

#define PLLCFGR_FROM_HSE (FWR_CLOCK_FROM_CRYSTAL << 22)
#define PLLCFGR_Q(divider) ((divider) << 24) /* for USB, which is off; must not be 0 or 1 */
#define PLLCFGR_P(divider) (((divider) / 2u - 1u) << 16)

#define CFGR_SWITCH_MASK 3u
#define CFGR_SWITCH_PLL 2u
#define CFGR_SWITCHED_MASK (3u << 2)
#define CFGR_SWITCHED_PLL (2u << 2)
#define CFGR_APB(divider) ((divider) == 1u ? 0u : (divider) == 2u ? 4u : (divider) == 4u ? 5u : 6u)

#define ACR_PREFETCH (1u << 8)
#define ACR_INSTRUCTION_CACHE (1u << 9) /* the F7's accelerator */
#define ACR_DATA_CACHE (1u << 10)       /* the F4's; zero on the F7 */

#define APB1_POWER (1u << 28)
#define PWR_SCALE_1 (3u << 14)
#define PWR_OVERDRIVE (1u << 16)
#define PWR_OVERDRIVE_SWITCH (1u << 17)

static int start_source(void)
{
#if FWR_CLOCK_FROM_CRYSTAL
    RCC_CR |= CR_HSE_ON;
    return fwr_becomes(&RCC_CR, CR_HSE_READY, CR_HSE_READY);
#else
    return 1; /* HSI runs from reset on */
#endif
}

/* The scale can be changed only while the PLL is off. */
static void raise_voltage(void)
{
#if FWR_CLOCK_SCALE_1
    RCC_APB1ENR |= APB1_POWER;
    (void)RCC_APB1ENR;
    PWR_CR |= PWR_SCALE_1;
#endif
}

static int overdrive(void)
{
#if FWR_CLOCK_OVERDRIVE
    RCC_APB1ENR |= APB1_POWER;
    PWR_CR |= PWR_OVERDRIVE;
    if (!fwr_becomes(&PWR_CSR, PWR_OVERDRIVE, PWR_OVERDRIVE)) {
        return 0;
    }
    PWR_CR |= PWR_OVERDRIVE_SWITCH;
    return fwr_becomes(&PWR_CSR, PWR_OVERDRIVE_SWITCH, PWR_OVERDRIVE_SWITCH);
#else
    return 1;
#endif
}

void fwr_clock_init(void)
{
    if (!start_source()) {
        RCC_CR &= ~CR_HSE_ON;
        return;
    }
    raise_voltage();
    RCC_PLLCFGR = PLLCFGR_Q(9u) | PLLCFGR_FROM_HSE | PLLCFGR_P(FWR_CLOCK_PLL_P) |
                  FWR_CLOCK_PLL_N << 6 | FWR_CLOCK_PLL_M;
    RCC_CR |= CR_PLL_ON;
    if (!overdrive() || !fwr_becomes(&RCC_CR, CR_PLL_READY, CR_PLL_READY)) {
        RCC_CR &= ~(CR_PLL_ON | CR_HSE_ON);
        return;
    }
    FLASH_ACR = ACR_PREFETCH | ACR_INSTRUCTION_CACHE |
                (FWR_CLOCK_DATA_CACHE ? ACR_DATA_CACHE : 0u) | FWR_CLOCK_FLASH_WAITS;
    (void)fwr_becomes(&FLASH_ACR, 0xFu, FWR_CLOCK_FLASH_WAITS);
    RCC_CFGR = CFGR_APB(FWR_CLOCK_APB2_DIVIDER) << 13 | CFGR_APB(FWR_CLOCK_APB1_DIVIDER) << 10 |
               CFGR_SWITCH_PLL;
    (void)fwr_becomes(&RCC_CFGR, CFGR_SWITCHED_MASK, CFGR_SWITCHED_PLL);
}

int fwr_clock_is_raised(void)
{
    return (RCC_CFGR & CFGR_SWITCHED_MASK) == CFGR_SWITCHED_PLL;
}
