/* SPDX-License-Identifier: Apache-2.0 */
/* flash_cfi.c: parallel NOR flash of two 16-bit chips side by side, Intel command set (JEDEC common
 * flash interface, command set 0x0001).
 *
 * During a command the whole flash reads as status, so the bootloader must run from other memory.
 */
#include "fwr.h"
#include "fwr_flash.h"
#include "fwr_link.h"
#include "fwr_wait.h"

/* Writes to both chips at once. */
#define COMMAND_ERASE 0x00200020u
#define COMMAND_CONFIRM 0x00D000D0u
#define COMMAND_WRITE 0x00400040u
#define COMMAND_CLEAR_STATUS 0x00500050u
#define COMMAND_READ 0x00FF00FFu

#define STATUS_READY 0x00800080u
#define STATUS_FAILED 0x003A003Au /* erase, write, voltage and lock errors */

#define ERASE_WAITS 100u /* erasing takes up to seconds */

static int32_t finish(volatile uint32_t *place, uint32_t waits)
{
    int is_ready = 0;
    uint32_t status;

    while (waits > 0 && !is_ready) {
        is_ready = fwr_becomes(place, STATUS_READY, STATUS_READY);
        waits--;
    }
    status = *place;
    if (is_ready && (status & STATUS_FAILED) == 0) {
        return FWR_OK;
    }
    *place = COMMAND_CLEAR_STATUS;
    return FWR_E_IO;
}

int32_t fwr_flash_erase(uint32_t address)
{
    volatile uint32_t *place = &FWR_REG(address);
    int32_t status;

    *place = COMMAND_ERASE;
    *place = COMMAND_CONFIRM;
    status = finish(place, ERASE_WAITS);
    *place = COMMAND_READ;
    return status;
}

int32_t fwr_flash_write(uint32_t address, const uint8_t *data, uint32_t size)
{
    volatile uint32_t *place = &FWR_REG(address);
    int32_t status = FWR_OK;

    for (uint32_t i = 0; i < size && status == FWR_OK; i += 4u) {
        volatile uint32_t *word = &FWR_REG(address + i);

        *word = COMMAND_WRITE;
        *word = fwr_link_get(&data[i], 4);
        status = finish(word, 1);
    }
    *place = COMMAND_READ;
    return status;
}
