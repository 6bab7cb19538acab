/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_fence.h: bytes on both sides of each pool of a debug image that nobody may write.
 *
 * The glue lays them there, with -DFWR_FENCES=1. Where one has changed when an operator begins or
 * ends, or a run ends, that is reported as a fault (ABI.md, section 4).
 */
#ifndef FWR_FENCE_H
#define FWR_FENCE_H

#include <stdint.h>

#include "fwr.h"

#if FWR_GUARDS
void fwr_guard_init(const struct fwr_model *model);

/* Returns only if every fence is whole. */
void fwr_guard_check(const struct fwr_model *model);
#else
static inline void fwr_guard_init(const struct fwr_model *model)
{
    (void)model;
}

static inline void fwr_guard_check(const struct fwr_model *model)
{
    (void)model;
}
#endif

#endif
