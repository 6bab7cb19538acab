/* SPDX-License-Identifier: Apache-2.0 */
/* cores.c (host): a stand-in for a second core that executes each job when it is started. */
#include "port/fwr_port.h"

#include "fwr.h"

int32_t fwr_port_core_start(void (*job)(uint32_t call, const void *argument), uint32_t call,
                            const void *argument)
{
    job(call, argument);
    return FWR_OK;
}

int32_t fwr_port_core_wait(uint32_t call)
{
    (void)call;
    return FWR_OK;
}
