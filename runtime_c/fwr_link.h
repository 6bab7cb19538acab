/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_link.h: frames over a byte stream: COBS encoding between zero bytes, with a CRC-32.
 *
 * Only frames with a correct checksum are delivered. After damage, reception resumes at the next
 * zero byte. ABI.md specifies the layout.
 */
#ifndef FWR_LINK_H
#define FWR_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "fwr_config.h"

/* Offsets in a frame's header; all integers are little-endian. */
#define FWR_LINK_SESSION 0u  /* u16 */
#define FWR_LINK_SEQUENCE 2u /* u16 */
#define FWR_LINK_KIND 4u     /* u8: a command, or what the device sends */
#define FWR_LINK_STATUS 5u   /* i8: enum fwr_status */

#define FWR_LINK_HEADER 6u /* bytes; the payload follows */
#define FWR_LINK_CRC 4u
#define FWR_LINK_FRAME_MAX (FWR_LINK_HEADER + FWR_LINK_PAYLOAD_MAX + FWR_LINK_CRC)

enum fwr_link_event {
    FWR_LINK_NOTHING, /* inside a frame or between frames */
    FWR_LINK_FRAME,   /* rx holds a valid frame until the next call */
    FWR_LINK_DAMAGED  /* the received bytes are not a valid frame */
};

struct fwr_link {
    uint32_t length;    /* decoded bytes in rx; of a valid frame, without its CRC */
    uint8_t block_left; /* bytes until the next COBS code byte */
    bool owes_zero;     /* the current block ends with an implied zero */
    bool broken;        /* too long for a frame */
    bool done;          /* the last byte ended a frame; the next byte starts a new one */
    uint8_t rx[FWR_LINK_FRAME_MAX];
};

/* Processes one received byte. Initialize a struct fwr_link with zeros. */
enum fwr_link_event fwr_link_feed(struct fwr_link *link, uint8_t byte);

/* Appends the CRC to frame[0, length); the array needs FWR_LINK_CRC more bytes. */
void fwr_link_close(uint8_t *frame, uint32_t length);

/* Sends a frame of length bytes plus CRC. The array is not modified. */
void fwr_link_send(const uint8_t *frame, uint32_t length);

/* Updates a CRC-32 (IEEE 802.3, reflected) with data; start with crc = 0. */
uint32_t fwr_link_crc32(uint32_t crc, const uint8_t *data, uint32_t size);

/* Little-endian integers of up to four bytes at any address: one, or several in sequence. */
void fwr_link_put(uint8_t *at, uint32_t value, uint32_t size);
void fwr_link_put_all(uint8_t *at, const uint32_t *values, uint32_t count, uint32_t size);
uint32_t fwr_link_get(const uint8_t *at, uint32_t size);

#endif
