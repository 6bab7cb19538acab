/* SPDX-License-Identifier: Apache-2.0 */
/* counter_ccount.c: the core's cycle counter of 32 bits, extended by each reading.
 *
 * A single interval without a reading must be shorter than 2^32 ticks: 53 s at 80 MHz.
 */
#include "xtensa.h"

static uint32_t last;
static uint32_t wraps;

static uint32_t ticks(void)
{
    uint32_t now;

    FWR_SPECIAL_READ("ccount", now);
    return now;
}

void fwr_counter_init(void)
{
    wraps = 0;
    last = ticks();
}

uint64_t fwr_port_counter(void)
{
    uint32_t now = ticks();

    wraps += now < last;
    last = now;
    return ((uint64_t)wraps << 32) | now;
}

#if FWR_COUNTER_SCALE_NUM > 8u * FWR_COUNTER_SCALE_DEN

/* In an emulator a tick is many instructions. A turn of the loop takes one instruction more, so the
 * count advances by two ticks in the turn that ends with the first instruction of a tick. */
void fwr_port_counter_align(void)
{
    uint32_t turns = 4u * FWR_COUNTER_SCALE_NUM / FWR_COUNTER_SCALE_DEN;
    uint32_t before = ticks();
    uint32_t now;
    uint32_t step;

    __asm__ volatile(
        "1:\n\t"
        ".rept %c[nops]\n\t"
        "nop\n\t"
        ".endr\n\t"
        "rsr   %[now], ccount\n\t"
        "sub   %[step], %[now], %[before]\n\t"
        "mov   %[before], %[now]\n\t"
        "addi  %[turns], %[turns], -1\n\t"
        "beqz  %[turns], 2f\n\t"
        "bnei  %[step], 2, 1b\n"
        "2:"
        : [now] "=&r"(now), [step] "=&r"(step), [before] "+r"(before), [turns] "+r"(turns)
        : [nops] "i"(FWR_COUNTER_SCALE_NUM / FWR_COUNTER_SCALE_DEN + 1u - 6u));
}

#else

/* A tick is a cycle. */
void fwr_port_counter_align(void) {}

#endif
