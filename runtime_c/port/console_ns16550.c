/* SPDX-License-Identifier: Apache-2.0 */
/* console_ns16550.c: a 16550 UART, polled, with registers FWR_CONSOLE_STRIDE bytes apart. It takes
 * 16 samples per bit; its first two registers are the divider while the latch bit of the line
 * register is set.
 */
#include "fwr.h"
#include "fwr_baud.h"
#include "fwr_drivers.h"

#if !defined(UART_REG) /* tests substitute a simulated chip */
#define UART_REG(number) (*(volatile uint8_t *)(FWR_CONSOLE_BASE + (number) * FWR_CONSOLE_STRIDE))
#endif

#define UART_DATA UART_REG(0u)
#define UART_IER UART_REG(1u)
#define UART_FCR UART_REG(2u)
#define UART_LCR UART_REG(3u)
#define UART_LSR UART_REG(5u)

#define FCR_ENABLE_AND_CLEAR 0x07u
#define LCR_8N1 0x03u
#define LCR_DIVIDER 0x80u
#define SAMPLES 16u
#define LSR_DATA_READY 0x01u
#define LSR_TX_EMPTY 0x20u
#define LSR_SENT 0x40u

static void set_divider(uint32_t divider)
{
    UART_LCR = LCR_8N1 | LCR_DIVIDER;
    UART_DATA = (uint8_t)(divider & 0xFFu);
    UART_IER = (uint8_t)(divider >> 8);
    UART_LCR = LCR_8N1;
}

/* The last read discards a byte received before the buffers were cleared. QEMU needs it: a sender
 * that found the buffer full waits for a read. */
void fwr_console_init(void)
{
    set_divider(fwr_baud_divider(FWR_CONSOLE_HZ / SAMPLES, 0, 1u, 0xFFFFu));
    UART_IER = 0;
    UART_FCR = FCR_ENABLE_AND_CLEAR;
    /* QEMU accepts more bytes only after a read, so a waiting byte would block the line. */
    (void)UART_DATA;
    (void)UART_DATA;
}

int32_t fwr_port_byte_in(void)
{
    if ((UART_LSR & LSR_DATA_READY) == 0) {
        return -1;
    }
    return UART_DATA;
}

void fwr_port_byte_out(uint8_t byte)
{
    while ((UART_LSR & LSR_TX_EMPTY) == 0) {}
    UART_DATA = byte;
}

int32_t fwr_port_set_baud(uint32_t baud, int now)
{
    uint32_t divider = fwr_baud_divider(FWR_CONSOLE_HZ / SAMPLES, baud, 1u, 0xFFFFu);

    if (divider == 0) {
        return FWR_E_UNSUPPORTED;
    }
    if (now) {
        for (uint32_t turn = 0; turn < FWR_WAIT_TURNS && (UART_LSR & LSR_SENT) == 0; turn++) {}
        set_divider(divider);
    }
    return FWR_OK;
}
