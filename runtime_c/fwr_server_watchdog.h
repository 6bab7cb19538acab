/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_server_watchdog.h: kicks the watchdog while waiting, and reports its expiry.
 *
 * Enabled by -DFWR_WATCHDOG=1, which the build sets for a board with a watchdog timeout.
 */
#ifndef FWR_SERVER_WATCHDOG_H
#define FWR_SERVER_WATCHDOG_H

#include "fwr_config.h"
#include "port/fwr_port.h"

/* Returns the next received byte or -1, and kicks the watchdog. */
static inline int32_t fwr_server_poll_byte(void)
{
#if FWR_WATCHDOG
    fwr_port_watchdog_kick();
#endif
    return fwr_port_byte_in();
}

/* Sends the fault report saved before a watchdog restart, if there is one. */
#if FWR_WATCHDOG
void fwr_server_report_watchdog(void);
#else
static inline void fwr_server_report_watchdog(void) {}
#endif

#endif
