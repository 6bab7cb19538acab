/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_stack.c: see fwr_stack.h. Stacks grow downward on all supported cores. */
#include "fwr_stack.h"

#include "fwr_config.h"

#define FWR_STACK_PAINT 0xc5a35ac5u

void fwr_stack_paint(void *low)
{
    FWR_ASSERT((uintptr_t)low % sizeof(uint32_t) == 0);
    volatile uint32_t here = 0;
    uintptr_t end = (uintptr_t)&here - FWR_STACK_MARGIN;
    for (volatile uint32_t *word = low; (uintptr_t)word < end; word++) {
        *word = FWR_STACK_PAINT;
    }
}

uint32_t fwr_stack_used(const void *low, const void *high)
{
    FWR_ASSERT((uintptr_t)low <= (uintptr_t)high);
    const volatile uint32_t *word = low;
    while ((uintptr_t)word < (uintptr_t)high && *word == FWR_STACK_PAINT) {
        word++;
    }
    return (uint32_t)((uintptr_t)high - (uintptr_t)word);
}
