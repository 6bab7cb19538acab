/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_server_watchdog.c: see fwr_server_watchdog.h. */
#include "fwr_server_watchdog.h"

#if FWR_WATCHDOG

#include "fwr.h"
#include "fwr_probe.h"
#include "fwr_server.h"
#include "fwr_server_internal.h"

#define KEPT 0x57a7c4edu /* unlikely in memory after power-on */

/* State at the expiry of the watchdog. Preserved by start-up code and resets. */
static struct {
    uint32_t kept;
    uint32_t operator_index;
    struct fwr_fault fault;
    uint16_t session;
    uint16_t sequence;
} watch __attribute__((section(".kept.watch")));

FWR_NORETURN void fwr_watchdog_expired(const struct fwr_fault *fault)
{
    watch.fault = *fault;
    watch.fault.family |= FWR_FAULT_WATCHDOG;
    watch.operator_index = fwr_probe_current();
    watch.session = fwr_server.session;
    watch.sequence = fwr_server.sequence;
    watch.kept = KEPT;
    fwr_port_reset();
}

void fwr_server_report_watchdog(void)
{
    if (watch.kept != KEPT) {
        return;
    }
    watch.kept = 0;
    fwr_server.session = watch.session;
    fwr_server.sequence = watch.sequence;
    fwr_probe_set_current(watch.operator_index);
    fwr_server_send_fault(&watch.fault);
    fwr_probe_set_current(FWR_PROBE_NO_OPERATOR);
    fwr_server.session = 0;
    fwr_server.sequence = 0;
}

#else
typedef int fwr_server_watchdog_is_off; /* C99 requires a declaration in every file */
#endif
