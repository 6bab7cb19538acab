/* port.c: the porting surface of QEMU's virt machine, except what the drivers define. */
#include "riscv32.h"

/* The machine's test device: a write ends or restarts the emulation. */
#define TEST_DEVICE (*(volatile uint32_t *)0x00100000u)
#define TEST_RESET 0x7777u

static const struct fwr_port_info info = {
    .board = FWR_BOARD_NAME,
    .text = "",
    .counter_unit = FWR_COUNTER_UNIT,
    .counter_scale_num = FWR_COUNTER_SCALE_NUM,
    .counter_scale_den = FWR_COUNTER_SCALE_DEN,
    .stack_low = fwr_ld_stack_low,
    .stack_high = fwr_ld_stack_high,
};

void fwr_port_init(void)
{
    fwr_console_init();
    fwr_counter_init();
}

const struct fwr_port_info *fwr_port_info(void)
{
    return &info;
}

void fwr_port_reset(void)
{
    TEST_DEVICE = TEST_RESET;
    fwr_port_fatal();
}

void fwr_port_fatal(void)
{
    for (;;) {
        __asm__ volatile("wfi");
    }
}
