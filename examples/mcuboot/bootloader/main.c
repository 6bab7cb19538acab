/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: reset, a moment of serial recovery, MCUboot, and the jump to image 0. */
#include <assert.h>
#include <bootutil/bootutil.h>
#include <bootutil/image.h>

#include "port.h"
#include "serial.h"

#define RECOVERY_MS 1500 /* QEMU notices within a second that a host has opened the port */
#define VTOR (*(volatile uint32_t *)0xE000ED08u)

int main(void);
void reset_handler(void);
static void stop(void);

extern uint32_t stack_top[], bss_start[], bss_end[], data_start[], data_end[], data_load[];

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    stack_top, reset_handler, stop, stop, stop, stop, stop,
};

static void stop(void)
{
    for (;;) {}
}

/* Of a failed assert(). */
void __assert_func(const char *file, int line, const char *function, const char *condition)
{
    (void)file;
    (void)line;
    (void)function;
    (void)condition;
    for (;;) {}
}

void reset_handler(void)
{
    memcpy(data_start, data_load, (size_t)((char *)data_end - (char *)data_start));
    memset(bss_start, 0, (size_t)((char *)bss_end - (char *)bss_start));
    (void)main();
}

static void start_image(const struct boot_rsp *found)
{
    const uint32_t *image = (const uint32_t *)(found->br_image_off + found->br_hdr->ih_hdr_size);

    serial_deinit();
    VTOR = (uint32_t)image;
    __asm__ volatile("dsb\n\tisb\n\tmsr msp, %0\n\tbx %1" ::"r"(image[0]), "r"(image[1]));
}

int main(void)
{
    struct boot_rsp found;

    serial_init();
    boot_serial_check_start(&serial_functions, RECOVERY_MS);
    if (FIH_EQ(boot_go(&found), FIH_SUCCESS)) {
        start_image(&found);
    }
    boot_serial_start(&serial_functions); /* nothing to start: wait for images */
    return 0;
}
