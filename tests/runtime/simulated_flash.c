/* simulated_flash.c: a simulated flash that loses power after a number of bytes, for slot tests.
 *
 * It follows the rules of NOR flash. The byte at the power loss is half erased or half written. The
 * test's fwr_board.h redirects flash addresses here.
 */
#include <setjmp.h>

#include "fwr.h"
#include "fwr_flash.h"
#include "fwr_slots.h"

#define POWER_CUT (-100)
#define HALF 0x55u /* bits that completed before the power loss */

uint8_t sim_flash[FWR_SLOT_COUNT * FWR_SLOT_BYTES];
int32_t sim_power; /* bytes until power loss; negative: never */
int32_t sim_stuck; /* the byte with a stuck lowest bit, which is not reported; or 0 */
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

/* ---- Bootloader actions from power-on -------------------------------------------------------- */

/* A complete update by a host. */
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
    return fwr_slots_commit(slots, slot, size, crc, id); /* repeated, as after a lost answer */
}

/* Starts; `slots` then holds the running image. */
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
