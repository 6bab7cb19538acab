/* clock_stm32f100.c: crystal and PLL of the STM32F100 value line (RM0041, chapter 6).
 *
 * The flash needs no wait state and no bus a divider up to 24 MHz, the chip's limit. What the
 * clock came to is read from the chip, so nothing is kept in RAM. Emulators may lack the clock
 * tree: its flags are never set there, and the reset clock (HSI, 8 MHz) stays.
 */
#include "cortex_m.h"

#define RCC_CR FWR_REG(0x40021000u)
#define RCC_CFGR FWR_REG(0x40021004u)

#define CR_HSE_ON (1u << 16)
#define CR_HSE_READY (1u << 17)
#define CR_PLL_ON (1u << 24)
#define CR_PLL_READY (1u << 25)

#define CFGR_SWITCH_MASK 3u
#define CFGR_SWITCH_PLL 2u
#define CFGR_SWITCHED_MASK (3u << 2)
#define CFGR_SWITCHED_PLL (2u << 2)
#define CFGR_PLL_FROM_HSE (1u << 16)
#define CFGR_PLL_MULTIPLIER(times) (((times)-2u) << 18)

/* A turn takes about a microsecond at 8 MHz; a crystal starts in a few milliseconds. */
#define WAIT_TURNS 50000u

static int becomes(volatile uint32_t *place, uint32_t mask, uint32_t value)
{
    for (uint32_t turn = 0; turn < WAIT_TURNS; turn++) {
        if ((*place & mask) == value) {
            return 1;
        }
    }
    return 0;
}

void fwr_clock_init(void)
{
    RCC_CR |= CR_HSE_ON;
    if (!becomes(&RCC_CR, CR_HSE_READY, CR_HSE_READY)) {
        RCC_CR &= ~CR_HSE_ON;
        return;
    }
    RCC_CFGR = CFGR_PLL_FROM_HSE | CFGR_PLL_MULTIPLIER(FWR_CLOCK_PLL_MULTIPLIER);
    RCC_CR |= CR_PLL_ON;
    if (!becomes(&RCC_CR, CR_PLL_READY, CR_PLL_READY)) {
        RCC_CR &= ~(CR_PLL_ON | CR_HSE_ON);
        return;
    }
    RCC_CFGR = (RCC_CFGR & ~CFGR_SWITCH_MASK) | CFGR_SWITCH_PLL;
    (void)becomes(&RCC_CFGR, CFGR_SWITCHED_MASK, CFGR_SWITCHED_PLL);
}

int fwr_clock_is_raised(void)
{
    return (RCC_CFGR & CFGR_SWITCHED_MASK) == CFGR_SWITCHED_PLL;
}
