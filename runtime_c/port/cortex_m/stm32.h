/* SPDX-License-Identifier: Apache-2.0 */
/* stm32.h: unit clocks and pin routing shared by the STM32 consoles.
 *
 * From the F2 on, ports have the same registers, 0x400 bytes apart. The board data lists the words
 * that enable units and the alternate function of the pins.
 */
#ifndef FWR_STM32_H
#define FWR_STM32_H

#include "cortex_m.h"
#include "fwr_baud.h"

#define FWR_STM32_PORT(pin, offset) FWR_REG(FWR_CONSOLE_GPIO + ((pin) / 16u) * 0x400u + (offset))
#define FWR_STM32_MODE(pin) FWR_STM32_PORT(pin, 0x00u) /* two bits per pin */
#define FWR_STM32_PULL(pin) FWR_STM32_PORT(pin, 0x0Cu) /* two bits per pin */
#define FWR_STM32_FUNCTION(pin) FWR_STM32_PORT(pin, 0x20u + (((pin) % 16u) / 8u) * 4u)

#define FWR_STM32_MODE_ALTERNATE 2u
#define FWR_STM32_PULL_UP 1u

static inline void fwr_stm32_field(volatile uint32_t *place, uint32_t low, uint32_t bits,
                                   uint32_t value)
{
    *place = (*place & ~(((1u << bits) - 1u) << low)) | value << low;
}

#if defined(FWR_CONSOLE_GPIO)
/* Select the function before switching the pin to it. */
static inline void fwr_stm32_route(uint32_t pin)
{
    uint32_t number = pin % 16u;

    fwr_stm32_field(&FWR_STM32_FUNCTION(pin), (number % 8u) * 4u, 4u, FWR_CONSOLE_FUNCTION);
    fwr_stm32_field(&FWR_STM32_PULL(pin), number * 2u, 2u, FWR_STM32_PULL_UP);
    fwr_stm32_field(&FWR_STM32_MODE(pin), number * 2u, 2u, FWR_STM32_MODE_ALTERNATE);
}
#endif

#if defined(FWR_CONSOLE_ENABLE)
/* Read back each word: a unit needs two cycles after its clock is enabled. */
static inline void fwr_stm32_enable(void)
{
    static const struct fwr_write words[] = FWR_CONSOLE_ENABLE;

    for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        FWR_REG(words[i].address) |= words[i].word;
        (void)FWR_REG(words[i].address);
    }
}
#endif

/* Returns the divider for a rate, FWR_CONSOLE_STEPS per clock period, or 0: see fwr_baud_divider.
 */
static inline uint32_t fwr_stm32_divider(uint32_t clock_hz, uint32_t baud)
{
#if defined(FWR_CONSOLE_STEPS) /* the low-power UART, which needs at least three periods */
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
