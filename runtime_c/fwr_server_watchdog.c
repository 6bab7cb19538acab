/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_server_watchdog.c: see fwr_server_watchdog.h. */
#include "fwr_server_watchdog.h"

#if FWR_WATCHDOG

#include "fwr.h"
#include "fwr_probe.h"
#include "fwr_server.h"
#include "fwr_server_internal.h"

#define REPORT_SAVED 0x57a7c4edu /* unlikely in memory after power-on */

/* State at the expiry of the watchdog. Preserved by start-up code and resets. */
static struct {
    uint32_t marker;
    uint32_t operator_index;
    struct fwr_fault fault;
    uint16_t session;
    uint16_t sequence;
} saved __attribute__((section(".retained.watchdog")));

FWR_NORETURN void fwr_watchdog_expired(const struct fwr_fault *fault)
{
    saved.fault = *fault;
    saved.fault.family |= FWR_FAULT_WATCHDOG;
    saved.operator_index = fwr_probe_current();
    saved.session = fwr_server.session;
    saved.sequence = fwr_server.sequence;
    saved.marker = REPORT_SAVED;
    fwr_port_reset();
}

void fwr_server_report_watchdog(void)
{
    if (saved.marker != REPORT_SAVED) {
        return;
    }
    saved.marker = 0;
    fwr_server.session = saved.session;
    fwr_server.sequence = saved.sequence;
    fwr_probe_set_current(saved.operator_index);
    fwr_server_send_fault(&saved.fault);
    fwr_probe_set_current(FWR_PROBE_NO_OPERATOR);
    fwr_server.session = 0;
    fwr_server.sequence = 0;
}

#else
typedef int fwr_server_watchdog_is_off; /* C99 requires a declaration in every file */
#endif
