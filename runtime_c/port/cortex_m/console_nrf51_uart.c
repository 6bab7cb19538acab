/* SPDX-License-Identifier: Apache-2.0 */
/* console_nrf51_uart.c: the UART of the nRF51 series, polled (reference manual 3.0, chapter 29). */
#include "cortex_m.h"
#include "fwr.h"
#include "fwr_baud.h"

#define UART_STARTRX FWR_REG(FWR_CONSOLE_BASE + 0x000u)
#define UART_STARTTX FWR_REG(FWR_CONSOLE_BASE + 0x008u)
#define UART_RXDRDY FWR_REG(FWR_CONSOLE_BASE + 0x108u)
#define UART_TXDRDY FWR_REG(FWR_CONSOLE_BASE + 0x11Cu)
#define UART_ENABLE FWR_REG(FWR_CONSOLE_BASE + 0x500u)
#define UART_PSELTXD FWR_REG(FWR_CONSOLE_BASE + 0x50Cu)
#define UART_PSELRXD FWR_REG(FWR_CONSOLE_BASE + 0x514u)
#define UART_RXD FWR_REG(FWR_CONSOLE_BASE + 0x518u)
#define UART_TXD FWR_REG(FWR_CONSOLE_BASE + 0x51Cu)
#define UART_BAUDRATE FWR_REG(FWR_CONSOLE_BASE + 0x524u)

#define GPIO_OUTSET FWR_REG(0x50000508u)
#define GPIO_DIRSET FWR_REG(0x50000518u)

#define ENABLE_UART 4u

/* The register counts in units of 16 MHz / 2^32; the lowest twelve bits are ignored. */
#define RATE_MIN 1200u
#define RATE_MAX 1000000u
#define RATE_STEP 0x1000u
#define RATE_WORD(baud) \
    (((baud) * 268u + (baud) * 435u / 1000u + RATE_STEP / 2u) & ~(RATE_STEP - 1u))

void fwr_console_init(void)
{
    GPIO_OUTSET = 1u << FWR_CONSOLE_TX_PIN; /* the line idles high */
    GPIO_DIRSET = 1u << FWR_CONSOLE_TX_PIN;
    UART_PSELTXD = FWR_CONSOLE_TX_PIN;
    UART_PSELRXD = FWR_CONSOLE_RX_PIN;
    UART_BAUDRATE = RATE_WORD(FWR_BAUD);
    UART_ENABLE = ENABLE_UART;
    UART_RXDRDY = 0;
    UART_TXDRDY = 0;
    UART_STARTRX = 1;
    UART_STARTTX = 1;
}

/* Clear the event before reading: the read raises the event of the next byte. */
int32_t fwr_port_byte_in(void)
{
    if (UART_RXDRDY == 0) {
        return -1;
    }
    UART_RXDRDY = 0;
    return (int32_t)(UART_RXD & 0xFFu);
}

void fwr_port_byte_out(uint8_t byte)
{
    UART_TXDRDY = 0;
    UART_TXD = byte;
    while (UART_TXDRDY == 0) {}
}

/* All bytes have left, since each one is waited for. */
int32_t fwr_port_set_baud(uint32_t baud, int now)
{
    uint32_t rate = baud == 0 ? FWR_BAUD : baud;

    if (rate < RATE_MIN || rate > RATE_MAX) {
        return FWR_E_UNSUPPORTED;
    }
    if (now) {
        UART_BAUDRATE = RATE_WORD(rate);
    }
    return FWR_OK;
}
