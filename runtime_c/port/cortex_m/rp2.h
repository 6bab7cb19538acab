/* SPDX-License-Identifier: Apache-2.0 */
/* rp2.h: addresses and resets of the units of RP2040 (Armv6-M) and RP2350 (Armv8-M).
 *
 * RP2040 data sheet, 2.2 and 2.14; RP2350 data sheet, 2.2 and 7.5. Both have the same units.
 */
#ifndef FWR_RP2_H
#define FWR_RP2_H

#include "cortex_m.h"

#if defined(__ARM_ARCH_6M__)
#define RP2_CLOCKS 0x40008000u
#define RP2_RESETS 0x4000C000u
#define RP2_IO 0x40014000u
#define RP2_PADS 0x4001C000u
#define RP2_XOSC 0x40024000u
#define RP2_PLL 0x40028000u
#define RP2_RESET_IO (1u << 5)
#define RP2_RESET_PADS (1u << 8)
#define RP2_RESET_PLL (1u << 12)
#define RP2_RESET_UART0 (1u << 22)
#else
#define RP2_CLOCKS 0x40010000u
#define RP2_RESETS 0x40020000u
#define RP2_IO 0x40028000u
#define RP2_PADS 0x40038000u
#define RP2_XOSC 0x40048000u
#define RP2_PLL 0x40050000u
#define RP2_RESET_IO (1u << 6)
#define RP2_RESET_PADS (1u << 9)
#define RP2_RESET_PLL (1u << 14)
#define RP2_RESET_UART0 (1u << 26)
#endif

#define RP2_CLEAR 0x3000u /* writing at this offset clears the bits that are set in the value */

/* Releases units from reset and waits until they are ready. */
static inline int fwr_rp2_wake(uint32_t units)
{
    FWR_REG(RP2_RESETS + RP2_CLEAR) = units;
    return fwr_becomes(&FWR_REG(RP2_RESETS + 0x08u), units, units);
}

#endif
