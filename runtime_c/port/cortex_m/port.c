/* SPDX-License-Identifier: Apache-2.0 */
/* port.c: restart, stop and identity of a Cortex-M; bring_up.c and the drivers define the rest. */
#include "cortex_m.h"

void fwr_port_reset(void)
{
    __asm__ volatile("dsb" ::: "memory");
    SCB_AIRCR = SCB_AIRCR_SYSRESETREQ;
    __asm__ volatile("dsb" ::: "memory");
    fwr_port_fatal();
}

uint32_t fwr_port_identity(uint32_t *words)
{
    uint32_t count = 0;
    words[count++] = SCB_CPUID;
#if defined(FWR_CHIP_ID)
    words[count++] = FWR_REG(FWR_CHIP_ID);
#endif
    return count;
}

void fwr_port_fatal(void)
{
    for (;;) {
        __asm__ volatile("wfi");
    }
}
