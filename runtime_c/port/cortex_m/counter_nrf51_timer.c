/* SPDX-License-Identifier: Apache-2.0 */
/* counter_nrf51_timer.c: a 32-bit nRF51 timer at 16 MHz (reference manual 3.0, chapter 18).
 *
 * The nRF51 has no SysTick. Reads extend the count to 64 bits; the timer wraps every 268 seconds,
 * so a measured interval needs a read at least that often.
 */
#include "cortex_m.h"

#define TIMER_START FWR_REG(FWR_COUNTER_BASE + 0x000u)
#define TIMER_STOP FWR_REG(FWR_COUNTER_BASE + 0x004u)
#define TIMER_CLEAR FWR_REG(FWR_COUNTER_BASE + 0x00Cu)
#define TIMER_CAPTURE0 FWR_REG(FWR_COUNTER_BASE + 0x040u)
#define TIMER_MODE FWR_REG(FWR_COUNTER_BASE + 0x504u)
#define TIMER_BITMODE FWR_REG(FWR_COUNTER_BASE + 0x508u)
#define TIMER_PRESCALER FWR_REG(FWR_COUNTER_BASE + 0x510u)
#define TIMER_CC0 FWR_REG(FWR_COUNTER_BASE + 0x540u)

#define MODE_TIMER 0u
#define BITMODE_32 3u

static uint64_t total;
static uint32_t last;

void fwr_counter_init(void)
{
    TIMER_MODE = MODE_TIMER;
    TIMER_BITMODE = BITMODE_32;
    TIMER_PRESCALER = 0;
    TIMER_CLEAR = 1;
    TIMER_START = 1;
    total = 0;
    last = 0;
}

uint64_t fwr_port_counter(void)
{
    TIMER_CAPTURE0 = 1;
    uint32_t now = TIMER_CC0;
    total += now - last;
    last = now;
    return total;
}

/* Restarting begins a new prescaler period. */
void fwr_port_counter_align(void)
{
    TIMER_STOP = 1;
    TIMER_START = 1;
}
