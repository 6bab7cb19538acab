/* SPDX-License-Identifier: Apache-2.0 */
/* counter_esp_cycles.c: the event counter of Espressif's RISC-V cores, which have no mcycle and
 * minstret (ESP32-C3 technical reference manual, chapter ESP-RISC-V CPU).
 *
 * A single interval without a reading must be shorter than 2^32 cycles: 26 s at 160 MHz.
 */
#include "riscv32.h"

#define MPCER "0x7e0" /* the counted event */
#define MPCMR "0x7e1" /* whether it counts */
#define MPCCR "0x7e2" /* the count */
#define EVENT_CYCLE 1u
#define MODE_COUNT 1u

static uint32_t last;
static uint32_t wraps;

void fwr_counter_init(void)
{
    FWR_CSR_WRITE(MPCER, EVENT_CYCLE);
    FWR_CSR_WRITE(MPCMR, MODE_COUNT);
    wraps = 0;
    FWR_CSR_READ(MPCCR, last);
}

uint64_t fwr_port_counter(void)
{
    uint32_t now = 0;

    FWR_CSR_READ(MPCCR, now);
    wraps += now < last;
    last = now;
    return ((uint64_t)wraps << 32) | now;
}

/* A tick is a cycle. */
void fwr_port_counter_align(void) {}
