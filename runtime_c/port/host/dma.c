/* SPDX-License-Identifier: Apache-2.0 */
/* dma.c (host): what a DMA controller would copy, copied when it is asked for: a stand-in.
 *
 * A device may be early, and this one always is.
 */
#include <string.h>

#include "fwr.h"
#include "port/fwr_port.h"

int32_t fwr_port_copy_start(void *to, const void *from, uint32_t size)
{
    (void)memcpy(to, from, size);
    return FWR_OK;
}

int32_t fwr_port_copy_wait(void)
{
    return FWR_OK;
}
