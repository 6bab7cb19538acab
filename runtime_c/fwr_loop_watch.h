/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_loop_watch.h: a watchdog that is fed between operators, and what is told after it bit.
 *
 * Only with -DFWR_WATCHDOG=1, which the build gives for a board whose watchdog has a time-out.
 */
#ifndef FWR_LOOP_WATCH_H
#define FWR_LOOP_WATCH_H

#include "fwr_config.h"
#include "port/fwr_port.h"

/* The next byte of the line, for those who wait for it: the watchdog does not bite them. */
static inline int32_t fwr_server_poll_byte(void)
{
#if FWR_WATCHDOG
    fwr_port_watchdog_kick();
#endif
    return fwr_port_byte_in();
}

/* After a restart by the watchdog: sends the report that was kept over it. */
#if FWR_WATCHDOG
void fwr_server_report_watchdog(void);
#else
static inline void fwr_server_report_watchdog(void) {}
#endif

#endif
