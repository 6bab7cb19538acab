/* SPDX-License-Identifier: Apache-2.0 */
/* boot_rp2350.c: by which block an RP2350's boot ROM knows an image (data sheet, 5.9.5).
 *
 * It stands in the first 4 KiB, behind the vectors with which the image begins: an executable for
 * Arm in the secure state. The list of blocks is this one alone.
 */
#include <stdint.h>

extern const uint32_t fwr_image_definition[5];

__attribute__((section(".boot.then"), used)) const uint32_t fwr_image_definition[5] = {
    0xFFFFDED3u, /* a block begins */
    0x10210142u, /* item: image type, one word; RP2350, Arm, secure, executable */
    0x000001FFu, /* last item, behind one word of items */
    0x00000000u, /* the next block is this one */
    0xAB123579u, /* the block ends */
};
