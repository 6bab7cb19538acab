/* SPDX-License-Identifier: Apache-2.0 */
/* console_rp2_uart.c: the PL011 of RP2040 and RP2350, polled (RP2040 data sheet, 2.19 and 4.2;
 * RP2350 data sheet, 9 and 12.1).
 */
#include "fwr.h"
#include "fwr_baud.h"
#include "rp2.h"

#define CLOCKS_PERIPHERALS FWR_REG(RP2_CLOCKS + 0x48u)
#define PERIPHERALS_ON (1u << 11) /* from the processor clock */

#define IO_FUNCTION(pin) FWR_REG(RP2_IO + 8u * (pin) + 4u)
#define FUNCTION_UART 2u
#define PAD(pin) FWR_REG(RP2_PADS + 4u * (pin) + 4u)
#define PAD_INPUT_4_MA 0x56u /* input, Schmitt trigger, pull-down, not isolated */

#define UART_DATA FWR_REG(FWR_CONSOLE_BASE + 0x00u)
#define UART_FLAGS FWR_REG(FWR_CONSOLE_BASE + 0x18u)
#define UART_DIVIDER FWR_REG(FWR_CONSOLE_BASE + 0x24u)
#define UART_FRACTION FWR_REG(FWR_CONSOLE_BASE + 0x28u)
#define UART_LINE FWR_REG(FWR_CONSOLE_BASE + 0x2Cu)
#define UART_CONTROL FWR_REG(FWR_CONSOLE_BASE + 0x30u)

#define FLAG_RX_EMPTY (1u << 4)
#define FLAG_TX_FULL (1u << 5)
#define LINE_8N1_FIFO (3u << 5 | 1u << 4)
#define CONTROL_ON (1u << 9 | 1u << 8 | 1u << 0)

#define FLAG_BUSY (1u << 3)
#define EIGHTHS_MIN 128u /* the divider is at least 1: 16 clocks per bit */
#define EIGHTHS_MAX (0xFFFFu << 7)

static void route(uint32_t pin)
{
    PAD(pin) = PAD_INPUT_4_MA;
    IO_FUNCTION(pin) = FUNCTION_UART;
}

/* The divider has six fractional bits at 16 samples per bit. A write to the line register applies
 * it. */
static void set_eighths(uint32_t eighths)
{
    UART_DIVIDER = eighths >> 7;
    UART_FRACTION = ((eighths & 0x7Fu) + 1u) / 2u;
    UART_LINE = LINE_8N1_FIFO;
}

void fwr_console_init(void)
{
    (void)fwr_rp2_wake(RP2_RESET_IO | RP2_RESET_PADS | RP2_RESET_UART0);
    CLOCKS_PERIPHERALS = PERIPHERALS_ON;
    set_eighths(8u * FWR_CONSOLE_NOW_HZ / FWR_BAUD);
    UART_CONTROL = CONTROL_ON;
    route(FWR_CONSOLE_TX_PIN);
    route(FWR_CONSOLE_RX_PIN);
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
