/* SPDX-License-Identifier: Apache-2.0 */
/* port.c: restart and stop of a Cortex-M; bring_up.c and the drivers define the rest. */
#include "cortex_m.h"

void fwr_port_reset(void)
{
    __asm__ volatile("dsb" ::: "memory");
    SCB_AIRCR = SCB_AIRCR_SYSRESETREQ;
    __asm__ volatile("dsb" ::: "memory");
    fwr_port_fatal();
}

void fwr_port_fatal(void)
{
    for (;;) {
        __asm__ volatile("wfi");
    }
}
