/* port.c: the porting surface of every 32-bit RISC-V board, except what the drivers define. */
#include "riscv32.h"

#define PORT_INFO(found) \
    { \
        .board = FWR_BOARD_NAME, .text = (found), .counter_unit = FWR_COUNTER_UNIT, \
        .counter_scale_num = FWR_COUNTER_SCALE_NUM, .counter_scale_den = FWR_COUNTER_SCALE_DEN, \
        .stack_low = fwr_ld_stack_low, .stack_high = fwr_ld_stack_high, \
    }

static const struct fwr_port_info info = PORT_INFO("");

#if defined(FWR_CLOCK_RAISED_HZ)
static const struct fwr_port_info info_at_reset_clock =
    PORT_INFO("reset clock: crystal or PLL not ready");
#endif

void fwr_port_init(void)
{
#if defined(FWR_CLOCK_RAISED_HZ)
    fwr_clock_init();
#endif
    fwr_console_init();
    fwr_counter_init();
}

/* Where the clock may fail there are two, so that none needs a place in RAM. */
const struct fwr_port_info *fwr_port_info(void)
{
#if defined(FWR_CLOCK_RAISED_HZ)
    if (!fwr_clock_is_raised()) {
        return &info_at_reset_clock;
    }
#endif
    return &info;
}

/* RISC-V leaves the way to restart to the chip. Where the chip's own does nothing, as an emulator's
 * may, the firmware begins anew by itself. */
void fwr_port_reset(void)
{
    static const struct fwr_write words[] = FWR_RESET_WRITES;

    for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        FWR_REG(words[i].address) = words[i].word;
    }
    for (volatile uint32_t turn = 0; turn < FWR_WAIT_TURNS; turn++) {}
    __asm__ volatile("la t0, fwr_start\n\tjr t0");
    __builtin_unreachable();
}

void fwr_port_fatal(void)
{
    for (;;) {
        __asm__ volatile("wfi");
    }
}
