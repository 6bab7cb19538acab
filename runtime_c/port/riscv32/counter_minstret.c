/* SPDX-License-Identifier: Apache-2.0 */
/* counter_minstret.c: the hart's 64-bit counter of retired instructions, in two halves. */
#include "riscv32.h"

static uint64_t start;

static uint64_t retired(void)
{
    uint32_t high = 0;
    uint32_t low = 0;
    uint32_t again = 0;

    /* NOLINTNEXTLINE(bugprone-infinite-loop): the register is volatile */
    do {
        FWR_CSR_READ("minstreth", high);
        FWR_CSR_READ("minstret", low);
        FWR_CSR_READ("minstreth", again);
    } while (high != again);
    return ((uint64_t)high << 32) | low;
}

void fwr_counter_init(void)
{
    start = retired();
}

uint64_t fwr_port_counter(void)
{
    return retired() - start;
}

/* A tick is one instruction. */
void fwr_port_counter_align(void) {}
