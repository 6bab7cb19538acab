/* SPDX-License-Identifier: Apache-2.0 */
/* external_memory.c: reads memory that the core cannot address.
 *
 * A board with a serial flash provides its driver here. Emulated boards use ordinary memory at the
 * address in fwr_board.h, which the emulator preloads.
 */
#include "port/fwr_port.h"

#include "fwr.h"
#include "fwr_board.h"

int32_t fwr_port_read(uint32_t offset, void *dst, uint32_t size)
{
#ifdef FWR_EXTERNAL_BASE
    if (offset > FWR_EXTERNAL_SIZE || size > FWR_EXTERNAL_SIZE - offset) {
        return FWR_E_RANGE;
    }
    const uint8_t *from = (const uint8_t *)FWR_EXTERNAL_BASE + offset;
    uint8_t *to = dst;
    for (uint32_t i = 0; i < size; i++) {
        to[i] = from[i];
    }
    return FWR_OK;
#else
    (void)offset;
    (void)dst;
    (void)size;
    return FWR_E_IO; /* this board has no such memory */
#endif
}

int32_t fwr_port_read_start(uint32_t offset, void *dst, uint32_t size)
{
    return fwr_port_read(offset, dst, size); /* the core copies at once */
}

int32_t fwr_port_read_wait(void)
{
    return FWR_OK;
}
