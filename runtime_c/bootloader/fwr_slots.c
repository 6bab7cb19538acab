/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_slots.c: see fwr_slots.h. */
#include "fwr_slots.h"

#include <stddef.h>

#include "fwr.h"
#include "fwr_flash.h"
#include "fwr_link.h"

#define ERASED 0xffffffffu
#define CHECKED offsetof(struct fwr_record, check)

uint32_t fwr_slots_address(uint32_t slot)
{
    return FWR_SLOT_BASE + slot * FWR_SLOT_BYTES;
}

static uint32_t record_address(uint32_t slot)
{
    return fwr_slots_address(slot) + FWR_SLOT_ROOM;
}

const struct fwr_record *fwr_slots_record(uint32_t slot)
{
    return (const struct fwr_record *)(const void *)FWR_FLASH_PLACE(record_address(slot));
}

const struct fwr_image_words *fwr_slots_image(uint32_t slot)
{
    return (const struct fwr_image_words *)(const void *)FWR_FLASH_PLACE(fwr_slots_address(slot));
}

/* ---- Reading the slots ----------------------------------------------------------------------- */

static uint32_t mark(uint32_t slot, uint32_t offset)
{
    return fwr_link_get(FWR_FLASH_PLACE(record_address(slot) + offset), 4);
}

static uint8_t state_of(uint32_t slot)
{
    const struct fwr_record *record = fwr_slots_record(slot);

    if (record->magic != FWR_RECORD_MAGIC ||
        record->check != fwr_link_crc32(0, (const uint8_t *)record, CHECKED) ||
        record->size > FWR_SLOT_ROOM ||
        record->crc != fwr_link_crc32(0, FWR_FLASH_PLACE(fwr_slots_address(slot)), record->size)) {
        return FWR_SLOT_EMPTY;
    }
    if (mark(slot, FWR_RECORD_CONFIRMED) == 0) {
        return FWR_SLOT_CONFIRMED;
    }
    /* A partly written mark counts as set, since the image may have been started. */
    return mark(slot, FWR_RECORD_STARTED) == ERASED ? FWR_SLOT_PENDING : FWR_SLOT_UNCONFIRMED;
}

/* Returns the newest image with at least this state: an application (base 0), or a model for one.
 */
static uint8_t newest(const struct fwr_slots *slots, uint32_t base, uint32_t state)
{
    uint8_t found = FWR_SLOT_NONE;
    uint32_t best = 0;

    for (uint8_t slot = 0; slot < FWR_SLOT_COUNT; slot++) {
        const struct fwr_record *record = fwr_slots_record(slot);

        if (slots->state[slot] >= state && record->base == base && record->sequence > best) {
            found = slot;
            best = record->sequence;
        }
    }
    return found;
}

static uint8_t newest_model(const struct fwr_slots *slots, uint8_t application, uint32_t state)
{
    if (application == FWR_SLOT_NONE) {
        return FWR_SLOT_NONE;
    }
    return newest(slots, fwr_slots_record(application)->sequence, state);
}

/* Returns the application to keep during the next update: a confirmed one, else any. */
static uint8_t kept_application(const struct fwr_slots *slots)
{
    uint8_t kept = newest(slots, 0, FWR_SLOT_CONFIRMED);

    return kept != FWR_SLOT_NONE ? kept : slots->application;
}

/* Returns an empty slot or the slot of the oldest image that need not be kept. If all must be kept,
 * returns the model's slot, since the application has a built-in model. */
static uint8_t free_slot(const struct fwr_slots *slots)
{
    uint8_t application = kept_application(slots);
    uint8_t model = newest_model(slots, application, FWR_SLOT_CONFIRMED);
    uint8_t found = model;
    uint32_t oldest = ERASED;

    for (uint8_t slot = 0; slot < FWR_SLOT_COUNT; slot++) {
        uint32_t age = slots->state[slot] == FWR_SLOT_EMPTY ? 0 : fwr_slots_record(slot)->sequence;

        if (slot != application && slot != model && age < oldest) {
            found = slot;
            oldest = age;
        }
    }
    return found;
}

static void choose(struct fwr_slots *slots)
{
    slots->application = newest(slots, 0, FWR_SLOT_PENDING);
    if (slots->application == FWR_SLOT_NONE) {
        slots->application = newest(slots, 0, FWR_SLOT_UNCONFIRMED);
    }
    slots->model = newest_model(slots, slots->application, FWR_SLOT_PENDING);
    slots->free = free_slot(slots);
}

void fwr_slots_scan(struct fwr_slots *slots)
{
    for (uint32_t slot = 0; slot < FWR_SLOT_COUNT; slot++) {
        slots->state[slot] = state_of(slot);
    }
    choose(slots);
}

/* ---- Writing the slots ----------------------------------------------------------------------- */

static int is_there(uint32_t address, const uint8_t *data, uint32_t size)
{
    const uint8_t *flash = FWR_FLASH_PLACE(address);

    for (uint32_t i = 0; i < size; i++) {
        if (flash[i] != data[i]) {
            return 0;
        }
    }
    return 1;
}

static int32_t write_checked(uint32_t address, const uint8_t *data, uint32_t size)
{
    if (fwr_flash_write(address, data, size) != 0 || !is_there(address, data, size)) {
        return FWR_E_IO;
    }
    return FWR_OK;
}

int32_t fwr_slots_write(struct fwr_slots *slots, uint32_t offset, const uint8_t *data,
                        uint32_t size)
{
    uint32_t address = fwr_slots_address(slots->free) + offset;

    if ((offset | size) % 4u != 0 || offset > FWR_SLOT_ROOM || size > FWR_SLOT_ROOM - offset) {
        return FWR_E_RANGE;
    }
    if (offset % FWR_SLOT_PAGE != 0 && is_there(address, data, size)) {
        return FWR_OK; /* repeated request: the answer was lost */
    }
    if (slots->state[slots->free] != FWR_SLOT_EMPTY) {
        slots->state[slots->free] = FWR_SLOT_EMPTY;
        choose(slots);
    }
    if (offset % FWR_SLOT_PAGE == 0 && fwr_flash_erase(address) != 0) {
        return FWR_E_IO;
    }
    return write_checked(address, data, size);
}

/* Returns whether the image is valid and, for a model, suits its application. */
static int is_sound(const struct fwr_image_words *image, uint8_t application)
{
    if (image->magic != FWR_IMAGE_MAGIC) {
        return 0;
    }
    if (image->start == 0) {
        return 1;
    }
    return application != FWR_SLOT_NONE && fwr_slots_image(application)->abi == image->abi &&
           fwr_slots_image(application)->ram <= image->ram;
}

int32_t fwr_slots_commit(struct fwr_slots *slots, uint32_t slot, uint32_t size, uint32_t crc,
                         const uint8_t *id)
{
    const struct fwr_record *old = fwr_slots_record(slot);
    uint32_t flash_address = fwr_slots_address(slot);
    uint8_t application = kept_application(slots);
    struct fwr_record record = {FWR_RECORD_MAGIC, 1, size, crc, 0, {0}, 0};

    if (slots->state[slot] == FWR_SLOT_PENDING && old->size == size && old->crc == crc) {
        return FWR_OK; /* repeated request: the answer was lost */
    }
    if (slot != slots->free || size > FWR_SLOT_ROOM || size < sizeof(struct fwr_image_words) ||
        fwr_link_crc32(0, FWR_FLASH_PLACE(flash_address), size) != crc) {
        return FWR_E_RANGE;
    }
    if (!is_sound(fwr_slots_image(slot), application)) {
        return FWR_E_UNSUPPORTED;
    }
    for (uint32_t other = 0; other < FWR_SLOT_COUNT; other++) {
        if (slots->state[other] != FWR_SLOT_EMPTY &&
            fwr_slots_record(other)->sequence >= record.sequence) {
            record.sequence = fwr_slots_record(other)->sequence + 1u;
        }
    }
    if (fwr_slots_image(slot)->start != 0) {
        record.base = fwr_slots_record(application)->sequence;
    }
    for (uint32_t i = 0; i < FWR_RECORD_ID; i++) {
        record.id[i] = id[i];
    }
    record.check = fwr_link_crc32(0, (const uint8_t *)&record, CHECKED);
    if (fwr_flash_erase(record_address(slot)) != 0 ||
        write_checked(record_address(slot), (const uint8_t *)&record, sizeof record) != 0) {
        return FWR_E_IO;
    }
    fwr_slots_scan(slots);
    return FWR_OK;
}

static int32_t set_mark(struct fwr_slots *slots, uint32_t slot, uint32_t offset)
{
    static const uint8_t zeros[4] = {0, 0, 0, 0};
    int32_t status = write_checked(record_address(slot) + offset, zeros, sizeof zeros);

    slots->state[slot] = state_of(slot);
    return status;
}

int32_t fwr_slots_confirm(struct fwr_slots *slots, uint32_t slot)
{
    int32_t status = FWR_OK;

    if (slot >= FWR_SLOT_COUNT || slots->state[slot] == FWR_SLOT_EMPTY) {
        return FWR_E_RANGE;
    }
    if (slots->state[slot] != FWR_SLOT_CONFIRMED) {
        status = set_mark(slots, slot, FWR_RECORD_CONFIRMED);
        choose(slots);
    }
    return status;
}

int32_t fwr_slots_mark_started(struct fwr_slots *slots)
{
    const uint8_t started[2] = {slots->application, slots->model};

    for (uint32_t i = 0; i < 2; i++) {
        if (started[i] != FWR_SLOT_NONE && slots->state[started[i]] == FWR_SLOT_PENDING &&
            set_mark(slots, started[i], FWR_RECORD_STARTED) != 0) {
            return FWR_E_IO;
        }
    }
    return FWR_OK;
}
