/* SPDX-License-Identifier: Apache-2.0 */
/* flash_memory.c: ordinary memory as a flash, for emulated boards.
 *
 * It follows the rules of NOR flash: a page is erased as a whole, and writing only clears bits.
 */
#include "fwr.h"
#include "fwr_flash.h"
#include "fwr_slots.h"

int32_t fwr_flash_erase(uint32_t address)
{
    volatile uint8_t *page = FWR_FLASH_PLACE(address);

    if (address % FWR_SLOT_PAGE != 0) {
        return FWR_E_RANGE;
    }
    for (uint32_t i = 0; i < FWR_SLOT_PAGE; i++) {
        page[i] = 0xff;
    }
    return FWR_OK;
}

int32_t fwr_flash_write(uint32_t address, const uint8_t *data, uint32_t size)
{
    volatile uint8_t *place = FWR_FLASH_PLACE(address);

    for (uint32_t i = 0; i < size; i++) {
        if ((place[i] & data[i]) != data[i]) {
            return FWR_E_IO;
        }
        place[i] = data[i];
    }
    return FWR_OK;
}
