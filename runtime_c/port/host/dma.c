/* SPDX-License-Identifier: Apache-2.0 */
/* dma.c (host): a stand-in for a DMA controller that copies when a transfer is started. */
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
