/* SPDX-License-Identifier: Apache-2.0 */
/* counter_pmccntr.c: the cycle counter of the performance monitor, extended to 64 bits at each
 * read. In QEMU with -icount shift=0, a cycle is an instruction. */
#include "cortex_r.h"

#define PMCR_ENABLE_AND_CLEAR (1u << 0 | 1u << 2)
#define CYCLES (1u << 31)

static uint64_t total;

void fwr_counter_init(void)
{
    CP15_WRITE(CP15_PMCR, PMCR_ENABLE_AND_CLEAR);
    CP15_WRITE(CP15_PMCNTENSET, CYCLES);
    total = 0;
}

uint64_t fwr_port_counter(void)
{
    uint32_t now = 0;

    CP15_READ(CP15_PMCCNTR, now);
    total += now - (uint32_t)total;
    return total;
}

/* A tick is one cycle. */
void fwr_port_counter_align(void) {}
