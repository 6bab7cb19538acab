/* SPDX-License-Identifier: Apache-2.0 */
/* stm32.h: what the consoles of the STM32 families have in common: clocks of units, pins.
 *
 * From the F2 on every port has the same registers, 0x400 bytes from port to port. Which words turn
 * the units on, and which function routes the pins, is data of the board.
 */
#ifndef FWR_STM32_H
#define FWR_STM32_H

#include "cortex_m.h"
#include "fwr_baud.h"

#define FWR_STM32_PORT(pin, offset) FWR_REG(FWR_CONSOLE_GPIO + ((pin) / 16u) * 0x400u + (offset))
#define FWR_STM32_MODE(pin) FWR_STM32_PORT(pin, 0x00u) /* two bits a pin */
#define FWR_STM32_PULL(pin) FWR_STM32_PORT(pin, 0x0Cu) /* two bits a pin */
#define FWR_STM32_FUNCTION(pin) FWR_STM32_PORT(pin, 0x20u + (((pin) % 16u) / 8u) * 4u)

#define FWR_STM32_MODE_ALTERNATE 2u
#define FWR_STM32_PULL_UP 1u

static inline void fwr_stm32_field(volatile uint32_t *place, uint32_t low, uint32_t bits,
                                   uint32_t value)
{
    *place = (*place & ~(((1u << bits) - 1u) << low)) | value << low;
}

#if defined(FWR_CONSOLE_GPIO)
/* The function is chosen before the pin is given to it. */
static inline void fwr_stm32_route(uint32_t pin)
{
    uint32_t number = pin % 16u;

    fwr_stm32_field(&FWR_STM32_FUNCTION(pin), (number % 8u) * 4u, 4u, FWR_CONSOLE_FUNCTION);
    fwr_stm32_field(&FWR_STM32_PULL(pin), number * 2u, 2u, FWR_STM32_PULL_UP);
    fwr_stm32_field(&FWR_STM32_MODE(pin), number * 2u, 2u, FWR_STM32_MODE_ALTERNATE);
}
#endif

#if defined(FWR_CONSOLE_ENABLE)
/* Each word is read back: a unit takes two cycles to wake behind the bit that wakes it. */
static inline void fwr_stm32_enable(void)
{
    static const struct fwr_write words[] = FWR_CONSOLE_ENABLE;

    for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        FWR_REG(words[i].address) |= words[i].word;
        (void)FWR_REG(words[i].address);
    }
}
#endif

/* What the divider counts for each bit, FWR_CONSOLE_STEPS a period of the clock, or 0: see
 * fwr_baud_divider. */
static inline uint32_t fwr_stm32_divider(uint32_t clock_hz, uint32_t baud)
{
#if defined(FWR_CONSOLE_STEPS) /* the low-power one, which wants at least three periods */
    uint32_t rate = baud == 0 ? FWR_BAUD : baud;
    uint32_t periods = clock_hz / rate;
    uint32_t rest = clock_hz % rate * FWR_CONSOLE_STEPS;

    return periods < 3u || periods > 0xFFFu
               ? 0
               : periods * FWR_CONSOLE_STEPS + (rest + rate / 2u) / rate;
#else
    return fwr_baud_divider(clock_hz, baud, 16u, 0xFFFFu);
#endif
}

#endif
