/* SPDX-License-Identifier: Apache-2.0 */
/* nrf_uarte.h: the UART with DMA of Nordic's nRF53 and nRF54L, polled, one byte per transfer.
 *
 * Both series have the same unit with registers at other offsets, which the including driver
 * defines: UARTE_RX_START, UARTE_RX_END and so on.
 */
#ifndef FWR_NRF_UARTE_H
#define FWR_NRF_UARTE_H

#include "cortex_m.h"
#include "fwr.h"
#include "fwr_baud.h"

#define UARTE_ENABLE FWR_REG(FWR_CONSOLE_BASE + 0x500u)
#define UARTE_RATE FWR_REG(FWR_CONSOLE_BASE + 0x524u)

#define ENABLE_UARTE 8u

/* A bit takes the whole part of 2^32 / word clocks, as the actual rates of the product
 * specifications show. Their words are multiples of 4096. */
#define UARTE_HZ 16000000u
#define CLOCKS_MIN 16u
#define CLOCKS_MAX 0xFFFFu
#define RATE_WORD(clocks) (0xFFFFFFFFu / (clocks) & ~0xFFFu)

#define PINS_OF_PORT 32u /* a pin's number is 32 times that of its port, and its place there */

/* The memory that the unit reads and writes. */
static volatile uint8_t fwr_uarte_received;
static volatile uint8_t fwr_uarte_sent;

void fwr_console_init(void)
{
    UARTE_PIN_SET = 1u << FWR_CONSOLE_TX_PIN % PINS_OF_PORT; /* the line idles high */
    UARTE_PIN_OUTPUT = 1u << FWR_CONSOLE_TX_PIN % PINS_OF_PORT;
    UARTE_TX_PIN = FWR_CONSOLE_TX_PIN;
    UARTE_RX_PIN = FWR_CONSOLE_RX_PIN;
    UARTE_RATE = RATE_WORD(UARTE_HZ / FWR_BAUD);
    UARTE_ENABLE = ENABLE_UARTE;
    UARTE_RX_PLACE = (uint32_t)(uintptr_t)&fwr_uarte_received;
    UARTE_RX_BYTES = 1;
    UARTE_TX_PLACE = (uint32_t)(uintptr_t)&fwr_uarte_sent;
    UARTE_TX_BYTES = 1;
    UARTE_RX_END = 0;
    UARTE_RX_START = 1;
}

/* The unit's FIFO holds the bytes that arrive until the next transfer starts. */
int32_t fwr_port_byte_in(void)
{
    uint8_t byte;

    if (UARTE_RX_END == 0) {
        return -1;
    }
    UARTE_RX_END = 0;
    byte = fwr_uarte_received;
    UARTE_RX_START = 1;
    return byte;
}

void fwr_port_byte_out(uint8_t byte)
{
    fwr_uarte_sent = byte;
    UARTE_TX_END = 0;
    UARTE_TX_START = 1;
    while (UARTE_TX_END == 0) {}
}

/* All bytes have left, since each one is waited for. */
int32_t fwr_port_set_baud(uint32_t baud, int now)
{
    uint32_t clocks = fwr_baud_divider(UARTE_HZ, baud, CLOCKS_MIN, CLOCKS_MAX);

    if (clocks == 0) {
        return FWR_E_UNSUPPORTED;
    }
    if (now) {
        UARTE_RATE = RATE_WORD(clocks);
    }
    return FWR_OK;
}

#endif
