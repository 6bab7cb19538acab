/* SPDX-License-Identifier: Apache-2.0 */
/* console_stm32_usart.c: a USART or LPUART of the STM32F3, F7, H7, L4 and U5 series, polled
 * (RM0385, chapter 31; RM0432, chapters 49 and 50; RM0433, chapter 48; RM0456, chapter 66).
 */
#include "fwr.h"
#include "stm32.h"

#define USART_CONTROL1 FWR_REG(FWR_CONSOLE_BASE + 0x00u)
#define USART_BAUD FWR_REG(FWR_CONSOLE_BASE + 0x0Cu)
#define USART_STATUS FWR_REG(FWR_CONSOLE_BASE + 0x1Cu)
#define USART_CLEAR FWR_REG(FWR_CONSOLE_BASE + 0x20u)
#define USART_RX_DATA FWR_REG(FWR_CONSOLE_BASE + 0x24u)
#define USART_TX_DATA FWR_REG(FWR_CONSOLE_BASE + 0x28u)

#define STATUS_OVERRUN (1u << 3)
#define STATUS_RX_FULL (1u << 5)
#define STATUS_SENT (1u << 6)
#define STATUS_TX_EMPTY (1u << 7)
#define CONTROL1_ENABLE (1u << 0)
#define CONTROL1_RX_ENABLE (1u << 2)
#define CONTROL1_TX_ENABLE (1u << 3)
#define CONTROL1_ON (CONTROL1_ENABLE | CONTROL1_TX_ENABLE | CONTROL1_RX_ENABLE)

void fwr_console_init(void)
{
    fwr_stm32_enable();
    fwr_stm32_route(FWR_CONSOLE_TX_PIN);
    fwr_stm32_route(FWR_CONSOLE_RX_PIN);
    USART_CONTROL1 = 0; /* the divider is locked while the unit is enabled, as after a boot ROM */
    USART_BAUD = fwr_stm32_divider(FWR_CONSOLE_NOW_HZ, 0);
    USART_CONTROL1 = CONTROL1_ON;
}

/* An overrun blocks reception until it is cleared. */
int32_t fwr_port_byte_in(void)
{
    uint32_t status = USART_STATUS;

    if ((status & STATUS_OVERRUN) != 0) {
        USART_CLEAR = STATUS_OVERRUN;
    }
    if ((status & STATUS_RX_FULL) == 0) {
        return -1;
    }
    return (int32_t)(USART_RX_DATA & 0xFFu);
}

void fwr_port_byte_out(uint8_t byte)
{
    while ((USART_STATUS & STATUS_TX_EMPTY) == 0) {}
    USART_TX_DATA = byte;
}

int32_t fwr_port_set_baud(uint32_t baud, int now)
{
    uint32_t divider = fwr_stm32_divider(FWR_CONSOLE_NOW_HZ, baud);

    if (divider == 0) {
        return FWR_E_UNSUPPORTED;
    }
    if (now) {
        (void)fwr_becomes(&USART_STATUS, STATUS_SENT, STATUS_SENT);
        USART_CONTROL1 = 0;
        USART_BAUD = divider;
        USART_CONTROL1 = CONTROL1_ON;
    }
    return FWR_OK;
}
