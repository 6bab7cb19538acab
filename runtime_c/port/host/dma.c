/* SPDX-License-Identifier: Apache-2.0 */
/* dma.c (host): a stand-in for a DMA controller that copies when a transfer is started. */
#include <string.h>

#include "fwr.h"
#include "port/fwr_port.h"

int32_t fwr_port_copy_start(uint32_t channel, void *to, const void *from, uint32_t size)
{
    (void)channel;
    (void)memcpy(to, from, size);
    return FWR_OK;
}

int32_t fwr_port_copy_wait(uint32_t channel)
{
    (void)channel;
    return FWR_OK;
}
