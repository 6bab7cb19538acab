/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_wait.h: registers as boards name them, and waiting for their flags with a bound. */
#ifndef FWR_WAIT_H
#define FWR_WAIT_H

#include <stdint.h>

#if !defined(FWR_REG) /* tests put a chip of their own behind it */
#define FWR_REG(address) (*(volatile uint32_t *)(address))
#endif

/* A word of the board's data: where, and what goes there or which bits are set there. */
struct fwr_write {
    uint32_t address;
    uint32_t word;
};

/* A turn takes about a microsecond at 8 MHz; a crystal starts in a few milliseconds. */
#define FWR_WAIT_TURNS 50000u

/* Whether the masked bits become value before the turns are over. */
static inline int fwr_becomes(const volatile uint32_t *place, uint32_t mask, uint32_t value)
{
    for (uint32_t turn = 0; turn < FWR_WAIT_TURNS; turn++) {
        if ((*place & mask) == value) {
            return 1;
        }
    }
    return 0;
}

#endif
