/* SPDX-License-Identifier: Apache-2.0 */
/* clock_nrf52.c: crystal and flash cache of the nRF52 series (nRF52840 product specification,
 * chapters 4.3 and 5.4).
 *
 * The processor runs at 64 MHz from reset on; the crystal makes the rate accurate.
 */
#include "cortex_m.h"

#define CLOCK_CRYSTAL_START FWR_REG(0x40000000u)
#define CLOCK_STATUS FWR_REG(0x4000040Cu)
#define NVMC_CACHE FWR_REG(0x4001E540u)

#define STATUS_CRYSTAL_RUNS (1u << 16 | 1u << 0)
#define CACHE_ON 1u

void fwr_clock_init(void)
{
    NVMC_CACHE = CACHE_ON;
    CLOCK_CRYSTAL_START = 1;
    (void)fwr_becomes(&CLOCK_STATUS, STATUS_CRYSTAL_RUNS, STATUS_CRYSTAL_RUNS);
}

int fwr_clock_is_raised(void)
{
    return (CLOCK_STATUS & STATUS_CRYSTAL_RUNS) == STATUS_CRYSTAL_RUNS;
}
