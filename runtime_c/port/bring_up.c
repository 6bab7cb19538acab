/* SPDX-License-Identifier: Apache-2.0 */
/* bring_up.c: initializes the board's drivers and describes the board, for all cores. */
#include "fwr_drivers.h"

#define PORT_INFO(found) \
    { \
        .board = FWR_BOARD_NAME, \
        .text = (found), \
        .counter_unit = FWR_COUNTER_UNIT, \
        .counter_scale_num = FWR_COUNTER_SCALE_NUM, \
        .counter_scale_den = FWR_COUNTER_SCALE_DEN, \
        .stack_low = fwr_ld_stack_low, \
        .stack_high = fwr_ld_stack_high, \
    }

static const struct fwr_port_info info = PORT_INFO("");

#if defined(FWR_CLOCK_RAISED_HZ)
static const struct fwr_port_info info_at_reset_clock =
    PORT_INFO("reset clock: crystal or PLL not ready");
#endif

void fwr_port_init(void)
{
#if defined(FWR_START_UP_WRITES)
    static const struct fwr_write words[] = FWR_START_UP_WRITES;

    fwr_write_all(words, sizeof(words) / sizeof(words[0]));
#endif
#if defined(FWR_CACHES)
    fwr_caches_init();
#endif
#if defined(FWR_CLOCK_RAISED_HZ)
    fwr_clock_init();
#endif
    fwr_console_init();
    fwr_counter_init();
#if FWR_WATCHDOG
    fwr_watchdog_init();
#endif
}

/* Two constant descriptions if the clock may fail, so that neither needs RAM. */
const struct fwr_port_info *fwr_port_info(void)
{
#if defined(FWR_CLOCK_RAISED_HZ)
    if (!fwr_clock_is_raised()) {
        return &info_at_reset_clock;
    }
#endif
    return &info;
}
