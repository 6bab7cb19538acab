/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_handoff.h: what loader and application say to each other: in RAM above the application's.
 *
 * fwr_board.h says where (FWR_HANDOFF). The words mean nothing after power-on; a restart keeps
 * them.
 */
#ifndef FWR_HANDOFF_H
#define FWR_HANDOFF_H

#include <stdint.h>

#include "fwr_board.h"

struct fwr_handoff {
    uint32_t request; /* FWR_HANDOFF_LISTEN, or anything else for nothing */
    uint32_t vectors; /* of the application that runs: a core without VTOR is led there */
    uint32_t model;   /* start function of the model image that takes the place of its own, or 0 */
    uint32_t unused;
};

/* The application restarts because the host said so: it may have something to say to the loader. */
#define FWR_HANDOFF_LISTEN 0x4E53494Cu

#if !defined(FWR_HANDOFF_AT) /* tests put memory of their own behind it */
#define FWR_HANDOFF_AT ((volatile struct fwr_handoff *)FWR_HANDOFF)
#endif

#endif
