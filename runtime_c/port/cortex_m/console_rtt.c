/* SPDX-License-Identifier: Apache-2.0 */
/* console_rtt.c: the link through memory that a debug probe accesses while the core runs: Segger's
 * Real-Time Transfer with one channel per direction (J-Link user guide UM08001, chapter RTT).
 *
 * The host finds the control block by its first bytes. Each side advances one of a buffer's two
 * positions.
 */
#include <string.h>

#include "cortex_m.h"

#define UP_BYTES 512u
#define DOWN_BYTES 512u

struct channel {
    const char *name;
    uint8_t *bytes;
    uint32_t size;
    volatile uint32_t write; /* advanced by the writer */
    volatile uint32_t read;  /* advanced by the reader */
    uint32_t flags;
};

static uint8_t up_bytes[UP_BYTES];
static uint8_t down_bytes[DOWN_BYTES];

static struct {
    char id[16];
    int32_t up_count;
    int32_t down_count;
    struct channel up;
    struct channel down;
} rtt;

void fwr_console_init(void)
{
    rtt.up_count = 1;
    rtt.down_count = 1;
    rtt.up = (struct channel){"link", up_bytes, UP_BYTES, 0, 0, 0};
    rtt.down = (struct channel){"link", down_bytes, DOWN_BYTES, 0, 0, 0};
    __asm__ volatile("dmb" ::: "memory");
    memcpy(rtt.id, "SEGGER RTT\0\0\0\0\0",
           sizeof rtt.id); /* last, since it makes the block discoverable */
}

int32_t fwr_port_byte_in(void)
{
    uint32_t at = rtt.down.read;
    if (at == rtt.down.write) {
        return -1;
    }
    uint8_t byte = *(volatile uint8_t *)&down_bytes[at];
    rtt.down.read = (at + 1u) % DOWN_BYTES;
    return byte;
}

void fwr_port_byte_out(uint8_t byte)
{
    uint32_t at = rtt.up.write;
    uint32_t next = (at + 1u) % UP_BYTES;
    while (next == rtt.up.read) {}
    *(volatile uint8_t *)&up_bytes[at] = byte;
    __asm__ volatile("dmb" ::: "memory");
    rtt.up.write = next;
}
