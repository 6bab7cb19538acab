/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_wait.h: register access and bounded waiting for flags. */
#ifndef FWR_WAIT_H
#define FWR_WAIT_H

#include <stdint.h>

#if !defined(FWR_REG) /* tests substitute a simulated chip */
#define FWR_REG(address) (*(volatile uint32_t *)(address))
#endif

/* A register write of the board's data: the word to write, or the bits to set. */
struct fwr_write {
    uint32_t address;
    uint32_t word;
};

static inline void fwr_write_all(const struct fwr_write *words, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        FWR_REG(words[i].address) = words[i].word;
    }
}

/* A turn takes about a microsecond at 8 MHz; a crystal starts in a few milliseconds. */
#define FWR_WAIT_TURNS 50000u

/* Returns whether the masked bits reach value in time. */
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
