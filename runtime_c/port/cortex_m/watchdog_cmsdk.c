/* SPDX-License-Identifier: Apache-2.0 */
/* watchdog_cmsdk.c: the watchdog of Arm's Cortex-M System Design Kit (DDI0479, 4.5). It counts
 * down; the first zero raises the NMI, the second resets the chip.
 */
#include "cortex_m.h"

#define WDOG_LOAD FWR_REG(FWR_WATCHDOG_BASE + 0x000u)
#define WDOG_CONTROL FWR_REG(FWR_WATCHDOG_BASE + 0x008u)
#define WDOG_INTCLR FWR_REG(FWR_WATCHDOG_BASE + 0x00Cu)
#define WDOG_RIS FWR_REG(FWR_WATCHDOG_BASE + 0x010u)
#define WDOG_LOCK FWR_REG(FWR_WATCHDOG_BASE + 0xC00u)

#define CONTROL_INTERRUPT (1u << 0) /* enables the counter as well */
#define CONTROL_RESET (1u << 1)
#define UNLOCK 0x1ACCE551u

void fwr_watchdog_init(void)
{
    WDOG_LOCK = UNLOCK;
    WDOG_LOAD = FWR_WATCHDOG_TICKS;
    WDOG_INTCLR = 1;
    WDOG_CONTROL = CONTROL_INTERRUPT | CONTROL_RESET;
    WDOG_LOCK = 0;
}

void fwr_port_watchdog_kick(void)
{
    WDOG_LOCK = UNLOCK;
    WDOG_INTCLR = 1;
    WDOG_LOCK = 0;
}

int fwr_watchdog_has_expired(void)
{
    return (int)(WDOG_RIS & 1u);
}
