/* SPDX-License-Identifier: Apache-2.0 */
/* console_cmsdk_uart.c: the UART of Arm's Cortex-M System Design Kit, polled (DDI0479, 4.3). */
#include "cortex_m.h"
#include "fwr.h"
#include "fwr_baud.h"

#define UART_DATA FWR_REG(FWR_CONSOLE_BASE + 0x00u)
#define UART_STATE FWR_REG(FWR_CONSOLE_BASE + 0x04u)
#define UART_CTRL FWR_REG(FWR_CONSOLE_BASE + 0x08u)
#define UART_BAUDDIV FWR_REG(FWR_CONSOLE_BASE + 0x10u)

#define STATE_TX_FULL (1u << 0)
#define STATE_RX_FULL (1u << 1)
#define CTRL_TX_ENABLE (1u << 0)
#define CTRL_RX_ENABLE (1u << 1)

#define BAUDDIV_MIN 16u
#define BAUDDIV_MAX 0xFFFFFu

void fwr_console_init(void)
{
    UART_BAUDDIV = FWR_CLOCK_HZ / FWR_BAUD;
    UART_CTRL = CTRL_TX_ENABLE | CTRL_RX_ENABLE;
}

int32_t fwr_port_byte_in(void)
{
    if ((UART_STATE & STATE_RX_FULL) == 0) {
        return -1;
    }
    return (int32_t)(UART_DATA & 0xFFu);
}

void fwr_port_byte_out(uint8_t byte)
{
    while ((UART_STATE & STATE_TX_FULL) != 0) {}
    UART_DATA = byte;
}

/* The byte being sent during the change is the second zero after a frame. */
int32_t fwr_port_set_baud(uint32_t baud, int now)
{
    uint32_t divider = fwr_baud_divider(FWR_CLOCK_HZ, baud, BAUDDIV_MIN, BAUDDIV_MAX);

    if (divider == 0) {
        return FWR_E_UNSUPPORTED;
    }
    if (now) {
        while ((UART_STATE & STATE_TX_FULL) != 0) {}
        UART_BAUDDIV = divider;
    }
    return FWR_OK;
}
