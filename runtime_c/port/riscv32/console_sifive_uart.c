/* SPDX-License-Identifier: Apache-2.0 */
/* console_sifive_uart.c: SiFive's UART, polled (FE310-G002 manual, chapters 17 and 18). */
#include "fwr.h"
#include "fwr_baud.h"
#include "riscv32.h"

#define UART_TX_DATA FWR_REG(FWR_CONSOLE_BASE + 0x00u)
#define UART_RX_DATA FWR_REG(FWR_CONSOLE_BASE + 0x04u)
#define UART_TX_CONTROL FWR_REG(FWR_CONSOLE_BASE + 0x08u)
#define UART_RX_CONTROL FWR_REG(FWR_CONSOLE_BASE + 0x0Cu)
#define UART_DIVIDER FWR_REG(FWR_CONSOLE_BASE + 0x18u)

#define TX_FULL (1u << 31)
#define RX_EMPTY (1u << 31)
#define CONTROL_ENABLE 1u

#define GPIO_FUNCTION_ENABLE FWR_REG(FWR_CONSOLE_GPIO + 0x38u)
#define GPIO_FUNCTION_SELECT FWR_REG(FWR_CONSOLE_GPIO + 0x3Cu)

#define UART_PENDING FWR_REG(FWR_CONSOLE_BASE + 0x14u)
#define PENDING_TX 1u                   /* fewer bytes waiting than the watermark */
#define CONTROL_TX_WATERMARK (1u << 16) /* one */
#define DIVIDER_MIN 16u
#define DIVIDER_MAX 0x10000u

void fwr_console_init(void)
{
    uint32_t pins = 1u << FWR_CONSOLE_TX_PIN | 1u << FWR_CONSOLE_RX_PIN;

    UART_DIVIDER = (FWR_CONSOLE_NOW_HZ + FWR_BAUD / 2u) / FWR_BAUD - 1u;
    UART_TX_CONTROL = CONTROL_ENABLE | CONTROL_TX_WATERMARK;
    UART_RX_CONTROL = CONTROL_ENABLE;
    GPIO_FUNCTION_SELECT &= ~pins;
    GPIO_FUNCTION_ENABLE |= pins;
}

int32_t fwr_port_byte_in(void)
{
    uint32_t taken = UART_RX_DATA; /* a read removes the byte, if there is one */

    return (taken & RX_EMPTY) != 0 ? -1 : (int32_t)(taken & 0xFFu);
}

void fwr_port_byte_out(uint8_t byte)
{
    while ((UART_TX_DATA & TX_FULL) != 0) {}
    UART_TX_DATA = byte;
}

/* The byte being sent during the change is the second zero after a frame. */
int32_t fwr_port_set_baud(uint32_t baud, int now)
{
    uint32_t divider = fwr_baud_divider(FWR_CONSOLE_NOW_HZ, baud, DIVIDER_MIN, DIVIDER_MAX);

    if (divider == 0) {
        return FWR_E_UNSUPPORTED;
    }
    if (now) {
        (void)fwr_becomes(&UART_PENDING, PENDING_TX, PENDING_TX);
        UART_DIVIDER = divider - 1u;
    }
    return FWR_OK;
}
