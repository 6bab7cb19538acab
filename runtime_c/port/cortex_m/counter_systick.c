/* SPDX-License-Identifier: Apache-2.0 */
/* counter_systick.c: SysTick on the processor clock; its interrupt extends 24 bits to 64. */
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

/* A write clears the counter, which reads zero until the next tick reloads it; wait for that. */
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

/* Start a new period here and count the rest of the old one as elapsed. */
void fwr_port_counter_align(void)
{
    restart();
    wraps = wraps + 1u;
}

/* A wrap between the two reads of `wraps` repeats the loop. A pending one (interrupts masked, or
 * not yet taken) counts if the value was read after it, that is, if it is still high. */
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
