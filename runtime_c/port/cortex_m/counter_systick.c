/* SPDX-License-Identifier: Apache-2.0 */
/* counter_systick.c: SysTick on the processor clock, 24 bits extended to 64 by its interrupt. */
#include "cortex_m.h"

#define RELOAD 0x00FFFFFFu
#define PERIOD (RELOAD + 1u)

#define CSR_ENABLE (1u << 0)
#define CSR_TICKINT (1u << 1)
#define CSR_CPU_CLOCK (1u << 2)

#define RELOAD_WAIT_TURNS 100000u

static volatile uint32_t wraps;

void fwr_systick_isr(void)
{
    wraps++;
}

/* A write clears the counter, which then reads zero until its next tick loads it: wait for that. */
static void restart(void)
{
    SYST_CVR = 0;
    for (uint32_t turn = 0; SYST_CVR == 0 && turn < RELOAD_WAIT_TURNS; turn++) {}
}

void fwr_counter_init(void)
{
    SYST_RVR = RELOAD;
    SYST_CSR = CSR_ENABLE | CSR_TICKINT | CSR_CPU_CLOCK;
    restart();
}

/* A new period from here: the rest of the old one is passed over as if it had gone by. */
void fwr_port_counter_align(void)
{
    restart();
    wraps = wraps + 1u;
}

/* A wrap between the two reads of `wraps` repeats the loop. One that is pending (interrupts
 * masked, or not taken yet) counts if the value was read after it, when it is still high. */
uint64_t fwr_port_counter(void)
{
    uint32_t high;
    uint32_t value;
    uint32_t pending;

    do {
        high = wraps;
        value = SYST_CVR;
        pending = SCB_ICSR & SCB_ICSR_PENDSTSET;
    } while (high != wraps);
    if (pending != 0 && value > RELOAD / 2) {
        high++;
    }
    return (uint64_t)high * PERIOD + (RELOAD - value);
}
