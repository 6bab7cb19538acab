/* SPDX-License-Identifier: Apache-2.0 */
/* flash_map.c: slots in the PSRAM, and the security counters. */
#include "port.h"

#include <bootutil/security_cnt.h>

#define AREA(image, slot) \
    {(uint8_t)(2 * (image) + (slot)), SLOT_ADDRESS(image, slot), SLOT_BYTES(image)}

static const struct flash_area areas[] = {AREA(0, 0), AREA(0, 1), AREA(1, 0), AREA(1, 1)};
#define AREA_COUNT ((int)(sizeof areas / sizeof areas[0]))

static uint8_t *place(const struct flash_area *area, uint32_t offset)
{
    return (uint8_t *)(area->address + offset);
}

static int is_outside(const struct flash_area *area, uint32_t offset, uint32_t size)
{
    return offset > area->fa_size || size > area->fa_size - offset;
}

int flash_area_open(uint8_t id, const struct flash_area **area)
{
    if (id >= AREA_COUNT) {
        return -1;
    }
    *area = &areas[id];
    return 0;
}

int flash_area_read(const struct flash_area *area, uint32_t offset, void *to, uint32_t size)
{
    if (is_outside(area, offset, size)) {
        return -1;
    }
    memcpy(to, place(area, offset), size);
    return 0;
}

/* Like NOR flash, writing only clears bits. */
int flash_area_write(const struct flash_area *area, uint32_t offset, const void *from,
                     uint32_t size)
{
    const uint8_t *bytes = from;

    if (is_outside(area, offset, size)) {
        return -1;
    }
    for (uint32_t i = 0; i < size; i++) {
        *place(area, offset + i) &= bytes[i];
    }
    return memcmp(place(area, offset), from, size) == 0 ? 0 : -1;
}

int flash_area_erase(const struct flash_area *area, uint32_t offset, uint32_t size)
{
    if (is_outside(area, offset, size) || offset % FLASH_SECTOR != 0 || size % FLASH_SECTOR != 0) {
        return -1;
    }
    memset(place(area, offset), 0xFF, size);
    return 0;
}

int flash_area_get_sectors(int id, uint32_t *count, struct flash_sector *sectors)
{
    if (id < 0 || id >= AREA_COUNT) {
        return -1;
    }
    *count = areas[id].fa_size / FLASH_SECTOR;
    for (uint32_t i = 0; i < *count; i++) {
        sectors[i] = (struct flash_sector){i * FLASH_SECTOR, FLASH_SECTOR};
    }
    return 0;
}

int flash_area_get_sector(const struct flash_area *area, uint32_t offset,
                          struct flash_sector *sector)
{
    *sector = (struct flash_sector){offset / FLASH_SECTOR * FLASH_SECTOR, FLASH_SECTOR};
    return is_outside(area, offset, 0) ? -1 : 0;
}

int flash_area_id_from_multi_image_slot(int image, int slot)
{
    return 2 * image + slot;
}

int flash_area_id_to_multi_image_slot(int image, int id)
{
    return id / 2 == image ? id % 2 : -1;
}

/* The image ids of uploads: 1 and 2 are the slots of image 0, 3 and 4 those of image 1. */
int flash_area_id_from_direct_image(int image_id)
{
    return image_id == 0 ? 0 : image_id - 1;
}

/* ---- Security counters: products keep them in OTP or trusted storage ---------------------------
 */

static uint32_t *counter(uint32_t image)
{
    return (uint32_t *)SECURITY_COUNTERS + image;
}

fih_ret boot_nv_security_counter_init(void)
{
    return FIH_SUCCESS;
}

fih_ret boot_nv_security_counter_get(uint32_t image, fih_int *value)
{
    *value = fih_int_encode((int)*counter(image));
    return FIH_SUCCESS;
}

int32_t boot_nv_security_counter_update(uint32_t image, uint32_t value)
{
    if (value > *counter(image)) {
        *counter(image) = value;
    }
    return 0;
}

fih_ret boot_nv_security_counter_is_update_possible(uint32_t image, uint32_t value)
{
    return value >= *counter(image) ? FIH_SUCCESS : FIH_FAILURE;
}
