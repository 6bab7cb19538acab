/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_flash.h: what a flash driver provides to the loader; flash_NAME.c, one is linked.
 *
 * Addresses are the board's; pages have FWR_SLOT_PAGE bytes. Every wait is bounded.
 */
#ifndef FWR_FLASH_H
#define FWR_FLASH_H

#include <stdint.h>

#include "fwr_board.h"

#if !defined(FWR_FLASH_PLACE) /* tests put memory of their own behind it */
#define FWR_FLASH_PLACE(address) ((uint8_t *)(address))
#endif

/* Sets every byte of the page at `address` to 0xff. 0, or a negative enum fwr_status. */
int32_t fwr_flash_erase(uint32_t address);

/* Writes `size` bytes, a multiple of four, to `address`, another, where they are erased. The same:
 * what is read back afterwards is the caller's business. */
int32_t fwr_flash_write(uint32_t address, const uint8_t *data, uint32_t size);

#endif
