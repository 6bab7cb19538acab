/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_pl011.h: Arm's UART PL011, polled (PrimeCell UART (PL011) Technical Reference Manual, 3.3).
 */
#ifndef FWR_PL011_H
#define FWR_PL011_H

#include "fwr.h"
#include "fwr_baud.h"
#include "fwr_drivers.h"

#define UART_DATA FWR_REG(FWR_CONSOLE_BASE + 0x00u)
#define UART_FLAGS FWR_REG(FWR_CONSOLE_BASE + 0x18u)
#define UART_DIVIDER FWR_REG(FWR_CONSOLE_BASE + 0x24u)
#define UART_FRACTION FWR_REG(FWR_CONSOLE_BASE + 0x28u)
#define UART_LINE FWR_REG(FWR_CONSOLE_BASE + 0x2Cu)
#define UART_CONTROL FWR_REG(FWR_CONSOLE_BASE + 0x30u)

#define FLAG_BUSY (1u << 3)
#define FLAG_RX_EMPTY (1u << 4)
#define FLAG_TX_FULL (1u << 5)
#define LINE_8N1_FIFO (3u << 5 | 1u << 4)
#define CONTROL_ON (1u << 9 | 1u << 8 | 1u << 0)

#define EIGHTHS_MIN 128u /* the divider is at least 1: 16 clocks per bit */
#define EIGHTHS_MAX (0xFFFFu << 7)

/* The divider has six fractional bits at 16 samples per bit. A write to the line register applies
 * it. */
static void set_eighths(uint32_t eighths)
{
    UART_DIVIDER = eighths >> 7;
    UART_FRACTION = ((eighths & 0x7Fu) + 1u) / 2u;
    UART_LINE = LINE_8N1_FIFO;
}

static void start_uart(void)
{
    set_eighths(8u * FWR_CONSOLE_NOW_HZ / FWR_BAUD);
    UART_CONTROL = CONTROL_ON;
}

int32_t fwr_port_byte_in(void)
{
    if ((UART_FLAGS & FLAG_RX_EMPTY) != 0) {
        return -1;
    }
    return (int32_t)(UART_DATA & 0xFFu);
}

void fwr_port_byte_out(uint8_t byte)
{
    while ((UART_FLAGS & FLAG_TX_FULL) != 0) {}
    UART_DATA = byte;
}

int32_t fwr_port_set_baud(uint32_t baud, int now)
{
    uint32_t eighths = fwr_baud_divider(8u * FWR_CONSOLE_NOW_HZ, baud, EIGHTHS_MIN, EIGHTHS_MAX);

    if (eighths == 0) {
        return FWR_E_UNSUPPORTED;
    }
    if (now) {
        (void)fwr_becomes(&UART_FLAGS, FLAG_BUSY, 0);
        set_eighths(eighths);
    }
    return FWR_OK;
}

#endif
