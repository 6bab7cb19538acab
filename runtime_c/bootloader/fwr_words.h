/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_words.h: initialization of memory before C code relies on it. */
#ifndef FWR_WORDS_H
#define FWR_WORDS_H

#include <stdint.h>

static inline void fwr_words_copy(uint32_t *to, const uint32_t *end, const uint32_t *from)
{
    while (to < end) {
        *to++ = *from++;
    }
}

static inline void fwr_words_clear(uint32_t *to, const uint32_t *end)
{
    while (to < end) {
        *to++ = 0;
    }
}

#endif
