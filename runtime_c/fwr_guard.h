/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_guard.h: guard bytes before and after each pool of a debug image.
 *
 * The glue reserves them with -DFWR_GUARDS=1. If a guard byte has changed when an operator begins
 * or ends, or a run ends, a fault is reported (ABI.md, section 4).
 */
#ifndef FWR_GUARD_H
#define FWR_GUARD_H

#include <stdint.h>

#include "fwr.h"

#if FWR_GUARDS
void fwr_guard_init(const struct fwr_model *model);

/* Returns only if all guard bytes are intact. */
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
