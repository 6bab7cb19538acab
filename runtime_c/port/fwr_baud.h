/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_baud.h: baud-rate dividers for UARTs that count clock periods. */
#ifndef FWR_BAUD_H
#define FWR_BAUD_H

#include <stdint.h>

#define FWR_BAUD 115200u         /* rate at start-up */
#define FWR_BAUD_ERROR_PARTS 50u /* the rate may be off by 1/50 */

/* Returns the rounded number of clock periods per bit, or 0 if out of the unit's range or too
 * inaccurate. `baud` 0 selects the rate at start-up. */
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
