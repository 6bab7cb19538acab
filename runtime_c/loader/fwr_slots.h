/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_slots.h: slots of flash, each with one image and, in its last page, the record of it.
 *
 * An image is an application, or a model for the application that was there when it came. Nothing
 * is believed but what a checksum covers; the record is written last. So whatever is cut off at
 * whatever moment, the images that were confirmed before are there afterwards, but for the one in
 * the free slot.
 */
#ifndef FWR_SLOTS_H
#define FWR_SLOTS_H

#include <stdint.h>

#include "fwr_image.h"

#include "fwr_board.h" /* FWR_SLOT_COUNT, _BASE, _BYTES, _PAGE */

#define FWR_SLOT_ROOM (FWR_SLOT_BYTES - FWR_SLOT_PAGE) /* for an image */
#define FWR_SLOT_NONE 0xffu

/* The higher, the better. */
enum fwr_slot_state {
    FWR_SLOT_EMPTY = 0, /* nothing, or not all of it */
    FWR_SLOT_UNCONFIRMED = 1, /* was started, and nobody confirmed it: started only for want of others */
    FWR_SLOT_PENDING = 2,  /* the next start is its trial */
    FWR_SLOT_CONFIRMED = 3 /* it answered, and the host said so */
};

#define FWR_RECORD_MAGIC 0x53525746u /* "FWRS" */
#define FWR_RECORD_ID 8u

struct fwr_record {
    uint32_t magic;
    uint32_t sequence; /* counts up from 1 over all slots: the newest image has the largest */
    uint32_t size;     /* of the image */
    uint32_t crc;      /* CRC-32 of it */
    uint32_t base;     /* of a model, its application's sequence; of an application 0 */
    uint8_t id[FWR_RECORD_ID]; /* whatever the host knows the image by */
    uint32_t check;            /* CRC-32 of all before it */
};

/* Behind the record, each in a piece of its own that is written once: 0 in the first four bytes. */
#define FWR_RECORD_STARTED 32u
#define FWR_RECORD_CONFIRMED 64u

struct fwr_slots {
    uint8_t state[FWR_SLOT_COUNT]; /* enum fwr_slot_state */
    uint8_t application;           /* the slot that is started next, or FWR_SLOT_NONE */
    uint8_t model;                 /* the model that it serves, or FWR_SLOT_NONE: its own */
    uint8_t free;                  /* the one slot that may be written */
};

/* Looks at the flash, all of it. */
void fwr_slots_scan(struct fwr_slots *slots);

const struct fwr_record *fwr_slots_record(uint32_t slot);
const struct fwr_image_words *fwr_slots_image(uint32_t slot);
uint32_t fwr_slots_address(uint32_t slot);

/* Bytes of the free slot's image; the first of a page erase it. These return enum fwr_status. */
int32_t fwr_slots_write(struct fwr_slots *slots, uint32_t offset, const uint8_t *data,
                        uint32_t size);

/* The image in the free slot is whole: checks that and writes its record. */
int32_t fwr_slots_commit(struct fwr_slots *slots, uint32_t slot, uint32_t size, uint32_t crc,
                         const uint8_t *id);

int32_t fwr_slots_confirm(struct fwr_slots *slots, uint32_t slot);

/* Before a start: what is tried for the first time is marked so. */
int32_t fwr_slots_mark_started(struct fwr_slots *slots);

#endif
