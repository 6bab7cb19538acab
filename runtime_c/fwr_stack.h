/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_stack.h: how deep the stack went: paint it once, look later for the deepest spot changed. */
#ifndef FWR_STACK_H
#define FWR_STACK_H

#include <stdint.h>

/* Paints [low, here - FWR_STACK_MARGIN), word aligned; `here` is the caller's stack pointer. */
void fwr_stack_paint(void *low);

/* Bytes used at most so far of [low, high). */
uint32_t fwr_stack_used(const void *low, const void *high);

#endif
