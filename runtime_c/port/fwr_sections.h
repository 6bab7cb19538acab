/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_sections.h: what start-up code does with the sections of the image, on every core. */
#ifndef FWR_SECTIONS_H
#define FWR_SECTIONS_H

#include "fwr_drivers.h"

static inline void fwr_copy_words(uint32_t *to, const uint32_t *end, const uint32_t *from)
{
    while (to < end) {
        *to++ = *from++;
    }
}

static inline void fwr_clear_words(uint32_t *to, const uint32_t *end)
{
    while (to < end) {
        *to++ = 0;
    }
}

/* Copies .data, and functions that run from RAM, and clears .bss. */
static inline void fwr_fill_sections(void)
{
    fwr_copy_words(fwr_ld_data_start, fwr_ld_data_end, fwr_ld_data_load);
#if defined(FWR_RAMFUNC)
    fwr_copy_words(fwr_ld_ramfunc_start, fwr_ld_ramfunc_end, fwr_ld_ramfunc_load);
#endif
    fwr_clear_words(fwr_ld_bss_start, fwr_ld_bss_end);
}

#endif
