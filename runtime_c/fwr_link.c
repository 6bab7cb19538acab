/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_link.c: see fwr_link.h. */
#include "fwr_link.h"

#include "port/fwr_port.h"

/* ---- Checksum and integers ----------------------------------------------------------------- */

uint32_t fwr_link_crc32(uint32_t crc, const uint8_t *data, uint32_t size)
{
    /* Four bits per step: a table of 64 bytes instead of 1024. */
    static const uint32_t table[16] = {
        0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u,
        0x4db26158u, 0x5005713cu, 0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu,
        0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu,
    };
    crc = ~crc;
    for (uint32_t i = 0; i < size; i++) {
        crc ^= data[i];
        crc = (crc >> 4) ^ table[crc & 15u];
        crc = (crc >> 4) ^ table[crc & 15u];
    }
    return ~crc;
}

void fwr_link_put(uint8_t *at, uint32_t value, uint32_t size)
{
    FWR_ASSERT(size <= 4u);
    for (uint32_t i = 0; i < size; i++) {
        at[i] = (uint8_t)(value & 0xffu);
        value >>= 8;
    }
}

void fwr_link_put_all(uint8_t *at, const uint32_t *values, uint32_t count, uint32_t size)
{
    for (uint32_t i = 0; i < count; i++) {
        fwr_link_put(at, values[i], size);
        at += size;
    }
}

uint32_t fwr_link_get(const uint8_t *at, uint32_t size)
{
    FWR_ASSERT(size <= 4u);
    uint32_t value = 0;
    while (size > 0) {
        size--;
        value = (value << 8) | at[size];
    }
    return value;
}

/* ---- Receiving ----------------------------------------------------------------------------- */

static void push(struct fwr_link *link, uint8_t byte)
{
    if (link->length < FWR_LINK_FRAME_MAX) {
        link->rx[link->length++] = byte;
    } else {
        link->broken = true;
    }
}

static void restart(struct fwr_link *link)
{
    link->length = 0;
    link->block_left = 0;
    link->owes_zero = false;
    link->broken = false;
    link->done = false;
}

static enum fwr_link_event finish(struct fwr_link *link)
{
    bool sound = !link->broken && link->block_left == 0;
    link->done = true;
    if (link->length == 0 && sound && !link->owes_zero) {
        return FWR_LINK_NOTHING; /* two zero bytes in a row */
    }
    if (!sound || link->length < FWR_LINK_HEADER + FWR_LINK_CRC) {
        return FWR_LINK_DAMAGED;
    }
    link->length -= FWR_LINK_CRC;
    if (fwr_link_get(&link->rx[link->length], FWR_LINK_CRC) !=
        fwr_link_crc32(0, link->rx, link->length)) {
        return FWR_LINK_DAMAGED;
    }
    return FWR_LINK_FRAME;
}

enum fwr_link_event fwr_link_feed(struct fwr_link *link, uint8_t byte)
{
    FWR_ASSERT(link->length <= FWR_LINK_FRAME_MAX);
    if (link->done) {
        restart(link);
    }
    if (byte == 0) {
        return finish(link);
    }
    if (link->block_left > 0) {
        link->block_left--;
        push(link, byte);
        return FWR_LINK_NOTHING;
    }
    /* A code byte: byte - 1 literal bytes follow, then a zero unless the block is full. */
    if (link->owes_zero) {
        push(link, 0);
    }
    link->block_left = (uint8_t)(byte - 1u);
    link->owes_zero = byte != 0xffu;
    return FWR_LINK_NOTHING;
}

/* ---- Sending ------------------------------------------------------------------------------- */

void fwr_link_close(uint8_t *frame, uint32_t length)
{
    FWR_ASSERT(length >= FWR_LINK_HEADER && length <= FWR_LINK_FRAME_MAX - FWR_LINK_CRC);
    fwr_link_put(&frame[length], fwr_link_crc32(0, frame, length), FWR_LINK_CRC);
}

void fwr_link_send(const uint8_t *frame, uint32_t length)
{
    FWR_ASSERT(length >= FWR_LINK_HEADER && length <= FWR_LINK_FRAME_MAX - FWR_LINK_CRC);
    uint32_t end = length + FWR_LINK_CRC;
    uint32_t at = 0;
    fwr_port_byte_out(0); /* ends preceding noise */
    while (at <= end) {
        uint32_t run = 0;
        while (run < 254u && at + run < end && frame[at + run] != 0) {
            run++;
        }
        fwr_port_byte_out((uint8_t)(run + 1u));
        for (uint32_t i = 0; i < run; i++) {
            fwr_port_byte_out(frame[at + i]);
        }
        at += run;
        if (run == 254u) {
            if (at == end) {
                break; /* a full block has no implied zero */
            }
        } else {
            at++; /* the implied zero, or the end */
        }
    }
    fwr_port_byte_out(0);
    fwr_port_byte_out(0); /* exposes a damaged first zero at once */
}
