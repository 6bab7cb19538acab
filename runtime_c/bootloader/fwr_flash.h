/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_flash.h: the interface of a flash driver for the bootloader; one flash_NAME.c is linked.
 *
 * Addresses are those of the board; pages have FWR_SLOT_PAGE bytes. Every wait is bounded.
 */
#ifndef FWR_FLASH_H
#define FWR_FLASH_H

#include <stdint.h>

#include "fwr_board.h"

#if !defined(FWR_FLASH_PLACE) /* tests substitute their own memory */
#define FWR_FLASH_PLACE(address) ((uint8_t *)(address))
#endif

/* Sets every byte of the page at `address` to 0xff. Returns 0 or a negative enum fwr_status. */
int32_t fwr_flash_erase(uint32_t address);

/* Writes `size` bytes to erased flash; address and size are multiples of four. Returns 0 or a
 * negative enum fwr_status; the caller verifies the result. */
int32_t fwr_flash_write(uint32_t address, const uint8_t *data, uint32_t size);

#endif
