/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_image.h: what an image in a slot begins with: addresses of its own.
 *
 * One of `entry` and `start` is zero: the image is an application or a model.
 */
#ifndef FWR_IMAGE_H
#define FWR_IMAGE_H

#include <stdint.h>

#include "fwr.h"

#define FWR_IMAGE_MAGIC 0x49525746u /* "FWRI" */

/* As the image itself writes it. */
struct fwr_image {
    uint32_t magic;
    uint32_t abi;                           /* FWR_ABI */
    const void *entry;                      /* of an application: vectors, or first instruction */
    const struct fwr_model *(*start)(void); /* of a model: makes it ready */
    const void *ram;                        /* an application leaves RAM free from here on, a
                                             * model takes it from here on */
    const void *stack_low;                  /* of an application */
    const void *stack_high;
};

/* As the loader reads it. */
struct fwr_image_words {
    uint32_t magic;
    uint32_t abi;
    uint32_t entry;
    uint32_t start;
    uint32_t ram;
    uint32_t stack_low;
    uint32_t stack_high;
};

/* ---- Symbols of the linker script ----------------------------------------------------------- */

extern const uint32_t fwr_ld_entry[];
extern uint32_t fwr_ld_ram[];

#endif
