/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_image.h: the header of an image in a slot.
 *
 * One of `entry` and `start` is zero: the image is an application or a model.
 */
#ifndef FWR_IMAGE_H
#define FWR_IMAGE_H

#include <stdint.h>

#include "fwr.h"

#define FWR_IMAGE_MAGIC 0x49525746u /* "FWRI" */

/* As an image defines it. */
struct fwr_image {
    uint32_t magic;
    uint32_t abi;                           /* FWR_ABI */
    const void *entry;                      /* application: vector table or first instruction */
    const struct fwr_model *(*start)(void); /* model: initialization */
    const void *ram;       /* first RAM address that an application leaves free or a model uses */
    const void *stack_low; /* application only */
    const void *stack_high;
};

/* As the bootloader reads it. */
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
