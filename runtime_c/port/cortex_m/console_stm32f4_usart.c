/* console_stm32f4_usart.c: a USART of the STM32F2 and F4 series, polled (RM0090, chapter 30). */
#include "stm32.h"

#define USART_STATUS FWR_REG(FWR_CONSOLE_BASE + 0x00u)
#define USART_DATA FWR_REG(FWR_CONSOLE_BASE + 0x04u)
#define USART_BAUD FWR_REG(FWR_CONSOLE_BASE + 0x08u)
#define USART_CONTROL1 FWR_REG(FWR_CONSOLE_BASE + 0x0Cu)

#define STATUS_RX_FULL (1u << 5)
#define STATUS_TX_EMPTY (1u << 7)
#define CONTROL1_RX_ENABLE (1u << 2)
#define CONTROL1_TX_ENABLE (1u << 3)
#define CONTROL1_ENABLE (1u << 13)

void fwr_console_init(void)
{
    fwr_stm32_enable();
    fwr_stm32_route(FWR_CONSOLE_TX_PIN);
    fwr_stm32_route(FWR_CONSOLE_RX_PIN);
    USART_BAUD = fwr_stm32_divider(FWR_CONSOLE_NOW_HZ);
    USART_CONTROL1 = CONTROL1_ENABLE | CONTROL1_TX_ENABLE | CONTROL1_RX_ENABLE;
}

/* Taking the byte after its status also clears an overrun. */
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
