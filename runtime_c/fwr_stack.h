/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_stack.h: measures stack depth: fills the stack with a pattern and finds its deepest change.
 */
#ifndef FWR_STACK_H
#define FWR_STACK_H

#include <stdint.h>

/* Paints [low, sp - FWR_STACK_MARGIN) with words; sp is the caller's stack pointer. */
void fwr_stack_paint(void *low);

/* Returns the deepest use of [low, high) in bytes. */
uint32_t fwr_stack_used(const void *low, const void *high);

#endif
