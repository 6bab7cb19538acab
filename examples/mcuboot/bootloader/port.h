/* SPDX-License-Identifier: Apache-2.0 */
/* port.h: the platform of MCUboot on QEMU's mps2-an386.
 *
 * The PSRAM, which a reset does not clear, takes the place of a flash with sectors of 4 KiB that
 * reads 0xff when erased. MCUboot's sources include this file under the names of Mynewt's headers,
 * which the SConstruct creates.
 */
#ifndef PORT_H
#define PORT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

/* ---- Flash map: boards/mps2-an386-mcuboot/board.toml has the same primary slots ------------- */

#define FLASH_SECTOR 0x1000u
#define SLOT_BYTES(image) ((image) == 0 ? 0x40000u : 0x8000u)
#define SLOT_ADDRESS(image, slot) \
    (((image) == 0 ? 0x21000000u : 0x21080000u) + (slot) * SLOT_BYTES(image))
#define SECURITY_COUNTERS 0x21090000u

#define FLASH_AREA_IMAGE_PRIMARY(image) (2u * (uint32_t)(image))
#define FLASH_AREA_IMAGE_SECONDARY(image) (2u * (uint32_t)(image) + 1u)
#define FLASH_AREA_IMAGE_SCRATCH 255

struct flash_area {
    uint8_t id;
    uint32_t address;
    uint32_t fa_size;
};

struct flash_sector {
    uint32_t offset;
    uint32_t size;
};

int flash_area_open(uint8_t id, const struct flash_area **area);
int flash_area_read(const struct flash_area *area, uint32_t offset, void *to, uint32_t size);
int flash_area_write(const struct flash_area *area, uint32_t offset, const void *from,
                     uint32_t size);
int flash_area_erase(const struct flash_area *area, uint32_t offset, uint32_t size);
int flash_area_get_sectors(int id, uint32_t *count, struct flash_sector *sectors);
int flash_area_get_sector(const struct flash_area *area, uint32_t offset,
                          struct flash_sector *sector);
int flash_area_id_from_multi_image_slot(int image, int slot);
int flash_area_id_to_multi_image_slot(int image, int id);
int flash_area_id_from_direct_image(int image_id);

static inline void flash_area_close(const struct flash_area *area)
{
    (void)area;
}

static inline uint32_t flash_area_align(const struct flash_area *area)
{
    (void)area;
    return 4;
}

static inline uint8_t flash_area_erased_val(const struct flash_area *area)
{
    (void)area;
    return 0xFF;
}

static inline int flash_area_get_id(const struct flash_area *area)
{
    return area->id;
}

static inline int flash_area_get_device_id(const struct flash_area *area)
{
    (void)area;
    return 0;
}

static inline uint32_t flash_area_get_off(const struct flash_area *area)
{
    return area->address;
}

static inline uint32_t flash_area_get_size(const struct flash_area *area)
{
    return area->fa_size;
}

static inline uint32_t flash_sector_get_off(const struct flash_sector *sector)
{
    return sector->offset;
}

static inline uint32_t flash_sector_get_size(const struct flash_sector *sector)
{
    return sector->size;
}

/* ---- What serial recovery takes from Mynewt ---------------------------------------------------
 */

#define htons(x) __builtin_bswap16(x)
#define ntohs(x) __builtin_bswap16(x)

#define BASE64_ENCODE_SIZE(size) (((size) + 2) / 3 * 4 + 1)
int base64_encode(const void *data, int size, char *text, uint8_t should_pad);
int base64_decode(const char *text, void *data);
int base64_decode_len(const char *text);

#define CRC16_INITIAL_CRC 0
uint16_t crc16_ccitt(uint16_t crc, const void *data, int size);

uint32_t k_uptime_get_32(void);
void os_cputime_delay_usecs(uint32_t microseconds);
void hal_system_reset(void);

/* ---- No log: the UART carries SMP ------------------------------------------------------------ */

#define MCUBOOT_LOG_MODULE_DECLARE(domain) extern int port_no_log
#define MCUBOOT_LOG_MODULE_REGISTER(domain) extern int port_no_log
#define MCUBOOT_LOG_ERR(...) ((void)0)
#define MCUBOOT_LOG_WRN(...) ((void)0)
#define MCUBOOT_LOG_INF(...) ((void)0)
#define MCUBOOT_LOG_DBG(...) ((void)0)

#endif
