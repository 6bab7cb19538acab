/* SPDX-License-Identifier: Apache-2.0 */
/* boot_esp_direct.c: the mark by which the boot ROM of an ESP32-C3 (from revision 3) or C6 starts a
 * program in the flash without a second-stage bootloader ("direct boot").
 *
 * The ROM maps the first 4 MiB of the flash and jumps behind these eight bytes, to fwr_start.
 */
#include <stdint.h>

#define DIRECT_BOOT 0xAEDB041Du

extern const uint32_t fwr_direct_boot[2];

__attribute__((section(".boot.first"), used))
const uint32_t fwr_direct_boot[2] = {DIRECT_BOOT, DIRECT_BOOT};
