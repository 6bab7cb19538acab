/* SPDX-License-Identifier: Apache-2.0 */
/* port.c: restart, stop and identity of a Cortex-R; bring_up.c and the drivers define the rest. */
#include "cortex_r.h"

void fwr_port_reset(void)
{
    static const struct fwr_write words[] = FWR_RESET_WRITES;

    fwr_write_all(words, sizeof(words) / sizeof(words[0]));
    fwr_port_fatal();
}

uint32_t fwr_port_identity(uint32_t *words)
{
    CP15_READ(CP15_MIDR, words[0]);
    return 1;
}

void fwr_port_fatal(void)
{
    for (;;) {
        __asm__ volatile("wfi");
    }
}
