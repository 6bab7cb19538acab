/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_defaults.c: defaults of optional port functions (port/fwr_port.h). */
#include <string.h>

#include "fwr.h"
#include "port/fwr_port.h"

FWR_WEAK int32_t fwr_port_set_baud(uint32_t baud, int now)
{
    (void)baud;
    (void)now;
    return FWR_E_UNSUPPORTED;
}

FWR_WEAK void fwr_port_trace_pin(int running)
{
    (void)running;
}

FWR_WEAK uint32_t fwr_port_identity(uint32_t *words)
{
    (void)words;
    return 0;
}

#if FWR_PRIVATE_IO
FWR_WEAK int32_t fwr_port_pool_write(void *pool, const void *from, uint32_t size)
{
    memcpy(pool, from, size);
    return FWR_OK;
}

FWR_WEAK int32_t fwr_port_pool_read(void *to, const void *pool, uint32_t size)
{
    memcpy(to, pool, size);
    return FWR_OK;
}
#endif
