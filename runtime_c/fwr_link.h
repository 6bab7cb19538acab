/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_link.h: frames over a byte stream: COBS between zero bytes, closed by a CRC-32.
 *
 * In: raw bytes of any quality. Out: frames whose checksum holds, and only those. After any
 * garbage the next zero byte starts afresh. ABI.md has the layout.
 */
#ifndef FWR_LINK_H
#define FWR_LINK_H

#include <stdint.h>

#include "fwr_config.h"

/* session u16, sequence u16, kind u8, status i8; all integers little-endian */
#define FWR_LINK_HEADER 6u
#define FWR_LINK_CRC 4u
#define FWR_LINK_FRAME_MAX (FWR_LINK_HEADER + FWR_LINK_PAYLOAD_MAX + FWR_LINK_CRC)

enum fwr_link_event {
    FWR_LINK_NOTHING, /* in the middle of a frame, or between two */
    FWR_LINK_FRAME,   /* rx holds a sound frame until the next feed */
    FWR_LINK_DAMAGED  /* bytes came that were no frame */
};

struct fwr_link {
    uint32_t length;    /* decoded bytes in rx; of a sound frame, without its CRC */
    uint8_t block_left; /* bytes until the next COBS code byte */
    uint8_t owes_zero;  /* the running block stands for a zero at its end */
    uint8_t broken;     /* too long to be a frame */
    uint8_t done;       /* the last feed ended a frame: the next one starts afresh */
    uint8_t rx[FWR_LINK_FRAME_MAX];
};

/* Takes one received byte. A zeroed struct fwr_link is ready to use. */
enum fwr_link_event fwr_link_feed(struct fwr_link *link, uint8_t byte);

/* Closes frame[0, length) with its CRC, for which the array has FWR_LINK_CRC bytes more. */
void fwr_link_close(uint8_t *frame, uint32_t length);

/* Sends a closed frame of length bytes, CRC not counted. The array is left as it is. */
void fwr_link_send(const uint8_t *frame, uint32_t length);

/* CRC-32 (IEEE 802.3, reflected) of data, going on from crc; a new one starts from 0. */
uint32_t fwr_link_crc32(uint32_t crc, const uint8_t *data, uint32_t size);

/* Little-endian integers of up to four bytes at any address; one after the other. */
void fwr_link_put(uint8_t *at, uint32_t value, uint32_t size);
void fwr_link_put_all(uint8_t *at, const uint32_t *values, uint32_t count, uint32_t size);
uint32_t fwr_link_get(const uint8_t *at, uint32_t size);

#endif
