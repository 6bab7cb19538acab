/* simulated_flash.c: a flash whose power goes after so many bytes, below the loader's slots.
 *
 * It keeps to the rules of NOR flash. The byte at which power goes is left half erased or half
 * written. The test's fwr_board.h leads addresses here.
 */
#include <setjmp.h>

#include "fwr.h"
#include "fwr_flash.h"
#include "fwr_slots.h"

#define POWER_CUT (-100)
#define HALF 0x55u /* of the bits, those that were quick */

uint8_t sim_flash[FWR_SLOT_COUNT * FWR_SLOT_BYTES];
int32_t sim_power; /* bytes until it goes; negative: it stays */
int32_t sim_stuck; /* the byte whose lowest bit cannot be written, of which nobody hears; or 0 */
static jmp_buf off;

static int is_over(void)
{
    return sim_power == 0 || sim_power-- == 0;
}

int32_t fwr_flash_erase(uint32_t address)
{
    uint8_t *page = FWR_FLASH_PLACE(address);

    if (address % FWR_SLOT_PAGE != 0) {
        return FWR_E_RANGE;
    }
    for (uint32_t i = 0; i < FWR_SLOT_PAGE; i++) {
        if (is_over()) {
            page[i] |= HALF;
            longjmp(off, 1);
        }
        page[i] = 0xff;
    }
    return FWR_OK;
}

int32_t fwr_flash_write(uint32_t address, const uint8_t *data, uint32_t size)
{
    uint8_t *place = FWR_FLASH_PLACE(address);

    for (uint32_t i = 0; i < size; i++) {
        if ((place[i] & data[i]) != data[i]) {
            return FWR_E_IO;
        }
        if (is_over()) {
            place[i] &= (uint8_t)(data[i] | HALF);
            longjmp(off, 1);
        }
        place[i] = data[i];
        if (sim_stuck != 0 && &place[i] == &sim_flash[sim_stuck]) {
            place[i] |= 1u;
        }
    }
    return FWR_OK;
}

/* ---- What a loader does, from power-on --------------------------------------------------------
 */

/* A host's whole update. */
int32_t sim_update(struct fwr_slots *slots, const uint8_t *image, uint32_t size, uint32_t crc)
{
    uint32_t slot;

    static const uint8_t id[FWR_RECORD_ID] = {1, 2, 3, 4, 5, 6, 7, 8};

    if (setjmp(off)) {
        return POWER_CUT;
    }
    fwr_slots_scan(slots);
    slot = slots->free;
    for (uint32_t at = 0; at < size; at += 64u) {
        uint32_t part = size - at < 64u ? size - at : 64u;
        int32_t status = fwr_slots_write(slots, at, &image[at], part);

        if (status != 0) {
            return status;
        }
    }
    (void)fwr_slots_commit(slots, slot, size, crc, id);
    return fwr_slots_commit(slots, slot, size, crc, id); /* the answer was lost */
}

/* A start: what runs then is in `slots`. */
int32_t sim_start(struct fwr_slots *slots)
{
    if (setjmp(off)) {
        return POWER_CUT;
    }
    fwr_slots_scan(slots);
    return fwr_slots_mark_started(slots);
}

int32_t sim_confirm(struct fwr_slots *slots, uint32_t slot)
{
    if (setjmp(off)) {
        return POWER_CUT;
    }
    fwr_slots_scan(slots);
    return fwr_slots_confirm(slots, slot);
}
