/* SPDX-License-Identifier: Apache-2.0 */
/* serial.c: the UART of serial recovery, with the base 64, CRC and time that it needs. */
#include "serial.h"

#include "port.h"

#define REG(address) (*(volatile uint32_t *)(address))
#define UART_DATA REG(0x40004000u)
#define UART_STATE REG(0x40004004u)
#define UART_CTRL REG(0x40004008u)
#define UART_BAUDDIV REG(0x40004010u)
#define UART_TX_FULL 1u
#define UART_RX_FULL 2u
#define TIMER_CTRL REG(0x40000000u)
#define TIMER_VALUE REG(0x40000004u)
#define TIMER_RELOAD REG(0x40000008u)
#define AIRCR REG(0xE000ED0Cu)
#define CLOCK_HZ 25000000u

void serial_init(void)
{
    UART_BAUDDIV = CLOCK_HZ / 115200u;
    UART_CTRL = 3;
    (void)UART_DATA; /* QEMU delivers a byte that waits since before the reset after this */
    TIMER_RELOAD = UINT32_MAX;
    TIMER_VALUE = UINT32_MAX;
    TIMER_CTRL = 1;
}

void serial_deinit(void)
{
    TIMER_CTRL = 0;
}

/* Returns 0 until a whole line has arrived, then its length. */
static int read_line(char *text, int size, int *is_line)
{
    static char line[256];
    static int length;

    *is_line = 0;
    while ((UART_STATE & UART_RX_FULL) != 0) {
        char byte = (char)UART_DATA;

        if (byte == '\n') {
            int count = length < size ? length : size - 1;

            memcpy(text, line, (size_t)count);
            text[count] = '\0';
            length = 0;
            *is_line = 1;
            return count;
        }
        length = length < (int)sizeof line ? length : 0;
        line[length++] = byte;
    }
    return 0;
}

static void write_text(const char *text, int size)
{
    for (int i = 0; i < size; i++) {
        while ((UART_STATE & UART_TX_FULL) != 0) {}
        UART_DATA = (uint8_t)text[i];
    }
}

const struct boot_uart_funcs serial_functions = {read_line, write_text};

/* ---- Base 64 and CRC --------------------------------------------------------------------------
 */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int base64_encode(const void *data, int size, char *text, uint8_t should_pad)
{
    const uint8_t *bytes = data;
    char *to = text;

    for (int i = 0; i < size; i += 3) {
        int count = size - i < 3 ? size - i : 3;
        uint32_t word = 0;

        for (int k = 0; k < 3; k++) {
            word = word << 8 | (k < count ? bytes[i + k] : 0u);
        }
        for (int k = 0; k < 4; k++) {
            if (k <= count) {
                *to++ = digits[word >> (18 - 6 * k) & 63u];
            } else if (should_pad) {
                *to++ = '=';
            }
        }
    }
    *to = '\0';
    return (int)(to - text);
}

int base64_decode(const char *text, void *data)
{
    uint8_t *to = data;
    uint32_t word = 0;
    int bits = 0;

    for (; *text != '\0' && *text != '='; text++) {
        const char *digit = strchr(digits, *text);

        if (digit == NULL) {
            return -1;
        }
        word = word << 6 | (uint32_t)(digit - digits);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            *to++ = (uint8_t)(word >> bits);
        }
    }
    return (int)(to - (uint8_t *)data);
}

int base64_decode_len(const char *text)
{
    return (int)(strcspn(text, "=") * 3 / 4);
}

uint16_t crc16_ccitt(uint16_t crc, const void *data, int size)
{
    const uint8_t *bytes = data;

    for (int i = 0; i < size; i++) {
        crc ^= (uint16_t)(bytes[i] << 8);
        for (int bit = 0; bit < 8; bit++) {
            crc = (uint16_t)(crc << 1 ^ ((crc & 0x8000u) != 0 ? 0x1021 : 0));
        }
    }
    return crc;
}

/* ---- Time and reset -----------------------------------------------------------------------------
 */

uint32_t k_uptime_get_32(void)
{
    return (UINT32_MAX - TIMER_VALUE) / (CLOCK_HZ / 1000u);
}

void os_cputime_delay_usecs(uint32_t microseconds)
{
    uint32_t start = TIMER_VALUE;

    while (start - TIMER_VALUE < microseconds * (CLOCK_HZ / 1000000u)) {}
}

void hal_system_reset(void)
{
    AIRCR = 0x05FA0004u;
    for (;;) {}
}
