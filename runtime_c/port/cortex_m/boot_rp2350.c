/* SPDX-License-Identifier: Apache-2.0 */
/* boot_rp2350.c: the block that identifies an image to an RP2350's boot ROM (data sheet, 5.9.5).
 *
 * It is in the first 4 KiB, after the vector table: an Arm executable in the secure state. The list
 * of blocks has only this one.
 */
#include <stdint.h>

extern const uint32_t fwr_image_definition[5];

__attribute__((section(".boot.then"), used)) const uint32_t fwr_image_definition[5] = {
    0xFFFFDED3u, /* start of the block */
    0x10210142u, /* item: image type, one word; RP2350, Arm, secure, executable */
    0x000001FFu, /* last item, after one word of items */
    0x00000000u, /* the next block is this one */
    0xAB123579u, /* end of the block */
};
