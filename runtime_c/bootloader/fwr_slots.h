/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_slots.h: flash slots, each with one image and, in its last page, the image's record.
 *
 * An image is an application, or a model for the application present when it was written. Only
 * checksummed data is trusted, and the record is written last. If an update is interrupted at any
 * point, all confirmed images outside the free slot remain intact.
 */
#ifndef FWR_SLOTS_H
#define FWR_SLOTS_H

#include <stdint.h>

#include "fwr_image.h"

#include "fwr_board.h" /* FWR_SLOT_COUNT, _BASE, _BYTES, _PAGE */

#define FWR_SLOT_ROOM (FWR_SLOT_BYTES - FWR_SLOT_PAGE) /* largest image */
#define FWR_SLOT_NONE 0xffu

/* Higher values are preferred. */
enum fwr_slot_state {
    FWR_SLOT_EMPTY = 0, /* nothing or an incomplete image */
    FWR_SLOT_UNCONFIRMED =
        1,                 /* started but not confirmed; started again only if there is no other */
    FWR_SLOT_PENDING = 2,  /* will be tested at the next start */
    FWR_SLOT_CONFIRMED = 3 /* confirmed by the host after it answered */
};

#define FWR_RECORD_MAGIC 0x53525746u /* "FWRS" */
#define FWR_RECORD_ID 8u

struct fwr_record {
    uint32_t magic;
    uint32_t sequence; /* increases from 1 over all slots; the newest image has the largest */
    uint32_t size;     /* image size in bytes */
    uint32_t crc;      /* CRC-32 of the image */
    uint32_t base;     /* model: its application's sequence number; application: 0 */
    uint8_t id[FWR_RECORD_ID]; /* chosen by the host */
    uint32_t check;            /* CRC-32 of the preceding members */
};

/* Offsets of marks in the record's page, each written once: the first four bytes become 0. */
#define FWR_RECORD_STARTED 32u
#define FWR_RECORD_CONFIRMED 64u

struct fwr_slots {
    uint8_t state[FWR_SLOT_COUNT]; /* enum fwr_slot_state */
    uint8_t application;           /* the slot to start next, or FWR_SLOT_NONE */
    uint8_t model; /* the slot of its model, or FWR_SLOT_NONE for the built-in model */
    uint8_t free;  /* the only slot that may be written */
};

/* Reads the state of all slots. */
void fwr_slots_scan(struct fwr_slots *slots);

const struct fwr_record *fwr_slots_record(uint32_t slot);
const struct fwr_image_words *fwr_slots_image(uint32_t slot);
uint32_t fwr_slots_address(uint32_t slot);

/* Writes to the free slot; writing the start of a page erases it. Returns an enum fwr_status, like
 * the following functions. */
int32_t fwr_slots_write(struct fwr_slots *slots, uint32_t offset, const uint8_t *data,
                        uint32_t size);

/* Checks the complete image in the free slot and writes its record. */
int32_t fwr_slots_commit(struct fwr_slots *slots, uint32_t slot, uint32_t size, uint32_t crc,
                         const uint8_t *id);

int32_t fwr_slots_confirm(struct fwr_slots *slots, uint32_t slot);

/* Marks a pending image as started, before its first start. */
int32_t fwr_slots_mark_started(struct fwr_slots *slots);

#endif
