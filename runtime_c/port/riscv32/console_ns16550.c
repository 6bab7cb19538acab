/* console_ns16550.c: a 16550 UART with registers one byte apart, polled. */
#include "riscv32.h"

#define UART_REG(offset) (*(volatile uint8_t *)(FWR_CONSOLE_BASE + (offset)))

#define UART_DATA UART_REG(0u)
#define UART_IER UART_REG(1u)
#define UART_FCR UART_REG(2u)
#define UART_LCR UART_REG(3u)
#define UART_LSR UART_REG(5u)

#define FCR_ENABLE_AND_CLEAR 0x07u
#define LCR_8N1 0x03u
#define LSR_DATA_READY 0x01u
#define LSR_TX_EMPTY 0x20u

/* The last read takes what arrived before the buffers were cleared. QEMU wants it: a sender that
 * found the buffer full waits for a read before it sends more. */
void fwr_console_init(void)
{
    UART_IER = 0;
    UART_LCR = LCR_8N1;
    UART_FCR = FCR_ENABLE_AND_CLEAR;
    /* QEMU takes further bytes from its other end only after a read: one that came before this
     * would block the line for ever. */
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
