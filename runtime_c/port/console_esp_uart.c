/* SPDX-License-Identifier: Apache-2.0 */
/* console_esp_uart.c: the UART of Espressif's chips, polled (ESP32-C3 and ESP32-C6 technical
 * reference manuals, chapter UART Controller).
 *
 * The boot ROM has printed through it: pins and 8N1 are set. Its clock is selected by the board's
 * writes at start-up, so that only the divider remains.
 */
#include "fwr.h"
#include "fwr_baud.h"
#include "fwr_drivers.h"

#define UART_FIFO FWR_REG(FWR_CONSOLE_BASE + 0x00u)
#define UART_DIVIDER FWR_REG(FWR_CONSOLE_BASE + 0x14u)
#define UART_STATUS FWR_REG(FWR_CONSOLE_BASE + 0x1Cu)

#define STATUS_RECEIVED 0xFFu
#define STATUS_WAITING (0xFFu << 16)
#define FIFO_BYTES 128u

#define SIXTEENTHS_MIN 32u /* two periods of the clock for each bit */
#define SIXTEENTHS_MAX 0xFFFFu

/* The integer part has 12 bits; the fraction of 4 bits is apart. */
static void set_sixteenths(uint32_t sixteenths)
{
    UART_DIVIDER = sixteenths >> 4 | (sixteenths & 0xFu) << 20;
#if defined(FWR_CONSOLE_UPDATE)
    FWR_REG(FWR_CONSOLE_UPDATE) = 1u; /* takes the new settings */
#endif
}

void fwr_console_init(void)
{
    set_sixteenths(16u * FWR_CONSOLE_NOW_HZ / FWR_BAUD);
}

int32_t fwr_port_byte_in(void)
{
    if ((UART_STATUS & STATUS_RECEIVED) == 0) {
        return -1;
    }
    return (int32_t)(UART_FIFO & 0xFFu);
}

void fwr_port_byte_out(uint8_t byte)
{
    while ((UART_STATUS & STATUS_WAITING) >> 16 >= FIFO_BYTES) {}
    UART_FIFO = byte;
}

/* The byte being sent during the change is the second zero after a frame. */
int32_t fwr_port_set_baud(uint32_t baud, int now)
{
    uint32_t sixteenths =
        fwr_baud_divider(16u * FWR_CONSOLE_NOW_HZ, baud, SIXTEENTHS_MIN, SIXTEENTHS_MAX);

    if (sixteenths == 0) {
        return FWR_E_UNSUPPORTED;
    }
    if (now) {
        (void)fwr_becomes(&UART_STATUS, STATUS_WAITING, 0);
        set_sixteenths(sixteenths);
    }
    return FWR_OK;
}
