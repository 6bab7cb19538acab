/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_baud.h: dividers for a line's rate, the same for every UART that counts periods of a clock.
 */
#ifndef FWR_BAUD_H
#define FWR_BAUD_H

#include <stdint.h>

#define FWR_BAUD 115200u         /* of start-up */
#define FWR_BAUD_ERROR_PARTS 50u /* the rate may be off by one of so many */

/* Periods of the clock for each bit, rounded, where `baud` 0 is that of start-up. 0 where the unit
 * cannot count so few or so many, or the rate would be too far off. */
static inline uint32_t fwr_baud_divider(uint32_t clock_hz, uint32_t baud, uint32_t least,
                                        uint32_t most)
{
    uint32_t rate = baud == 0 ? FWR_BAUD : baud;
    uint32_t divider = (clock_hz + rate / 2u) / rate;
    uint32_t reached = divider * rate;
    uint32_t error = reached > clock_hz ? reached - clock_hz : clock_hz - reached;

    if (divider < least || divider > most || error > clock_hz / FWR_BAUD_ERROR_PARTS) {
        return 0;
    }
    return divider;
}

#endif
