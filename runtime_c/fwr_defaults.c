/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_defaults.c: empty defaults of optional port functions (port/fwr_port.h). */
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
