/* SPDX-License-Identifier: Apache-2.0 */
/* console_stm32f1_usart.c: a USART of the STM32F1, F2 and F4 series, polled (RM0041, chapters 6, 7
 * and 23; RM0090, chapters 7, 8 and 30).
 *
 * On the F1 it is USART1 on its default pins of port A: 9 transmits, 10 receives. On the others,
 * the board data enables units and routes pins.
 */
#include "fwr.h"
#include "stm32.h"

#define USART_STATUS FWR_REG(FWR_CONSOLE_BASE + 0x00u)
#define USART_DATA FWR_REG(FWR_CONSOLE_BASE + 0x04u)
#define USART_BAUD FWR_REG(FWR_CONSOLE_BASE + 0x08u)
#define USART_CONTROL1 FWR_REG(FWR_CONSOLE_BASE + 0x0Cu)

#define STATUS_RX_FULL (1u << 5)
#define STATUS_SENT (1u << 6)
#define STATUS_TX_EMPTY (1u << 7)
#define CONTROL1_RX_ENABLE (1u << 2)
#define CONTROL1_TX_ENABLE (1u << 3)
#define CONTROL1_ENABLE (1u << 13)

#if !defined(FWR_CONSOLE_GPIO) /* the F1 has different pin registers */

#define RCC_APB2ENR FWR_REG(0x40021018u)
#define APB2_PORT_A (1u << 2)
#define APB2_USART1 (1u << 14)

#define PORT_A_HIGH FWR_REG(0x40010804u) /* four bits per pin, pins 8 to 15 */
#define PIN_MASK(pin) (0xFu << (((pin) - 8u) * 4u))
#define PIN_MODE(pin, mode) ((mode) << (((pin) - 8u) * 4u))
#define MODE_ALTERNATE_OUTPUT 0xBu /* push-pull, driven by the peripheral */
#define MODE_FLOATING_INPUT 0x4u

static void connect(void)
{
    RCC_APB2ENR |= APB2_PORT_A | APB2_USART1;
    PORT_A_HIGH = (PORT_A_HIGH & ~(PIN_MASK(FWR_CONSOLE_TX_PIN) | PIN_MASK(FWR_CONSOLE_RX_PIN))) |
                  PIN_MODE(FWR_CONSOLE_TX_PIN, MODE_ALTERNATE_OUTPUT) |
                  PIN_MODE(FWR_CONSOLE_RX_PIN, MODE_FLOATING_INPUT);
}

#else

static void connect(void)
{
    fwr_stm32_enable();
    fwr_stm32_route(FWR_CONSOLE_TX_PIN);
    fwr_stm32_route(FWR_CONSOLE_RX_PIN);
}

#endif

void fwr_console_init(void)
{
    connect();
    USART_BAUD = fwr_stm32_divider(FWR_CONSOLE_NOW_HZ, 0);
    USART_CONTROL1 = CONTROL1_ENABLE | CONTROL1_TX_ENABLE | CONTROL1_RX_ENABLE;
}

/* Reading the byte after its status also clears an overrun. */
int32_t fwr_port_byte_in(void)
{
    if ((USART_STATUS & STATUS_RX_FULL) == 0) {
        return -1;
    }
    return (int32_t)(USART_DATA & 0xFFu);
}

void fwr_port_byte_out(uint8_t byte)
{
    while ((USART_STATUS & STATUS_TX_EMPTY) == 0) {}
    USART_DATA = byte;
}

int32_t fwr_port_set_baud(uint32_t baud, int now)
{
    uint32_t divider = fwr_stm32_divider(FWR_CONSOLE_NOW_HZ, baud);

    if (divider == 0) {
        return FWR_E_UNSUPPORTED;
    }
    if (now) {
        (void)fwr_becomes(&USART_STATUS, STATUS_SENT, STATUS_SENT);
        USART_BAUD = divider;
    }
    return FWR_OK;
}
