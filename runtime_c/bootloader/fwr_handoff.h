/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_handoff.h: data passed between bootloader and application, in RAM above the application's.
 *
 * FWR_HANDOFF in fwr_board.h is its address. The contents are undefined after power-on and survive
 * a restart.
 */
#ifndef FWR_HANDOFF_H
#define FWR_HANDOFF_H

#include <stdint.h>

#include "fwr_board.h"

struct fwr_handoff {
    uint32_t request; /* FWR_HANDOFF_LISTEN, or any other value for none */
    uint32_t vectors; /* vector table of the running application, used by cores without VTOR */
    uint32_t model;   /* start function of a model image that replaces the built-in model, or 0 */
    uint32_t unused;
};

/* The application restarts at the host's request: the bootloader listens longer. */
#define FWR_HANDOFF_LISTEN 0x4E53494Cu

#if !defined(FWR_HANDOFF_AT) /* tests substitute their own memory */
#define FWR_HANDOFF_AT ((volatile struct fwr_handoff *)FWR_HANDOFF)
#endif

#endif
