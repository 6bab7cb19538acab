/* SPDX-License-Identifier: Apache-2.0 */
/* port.c: restart, stop and identity of an Xtensa core; bring_up.c and the drivers define the rest.
 */
#include "xtensa.h"

#define CONFIGURATION_LOW "176"
#define CONFIGURATION_HIGH "208"

/* A core cannot reset itself. If the chip's own reset has no effect, start the firmware again. */
void fwr_port_reset(void)
{
    static const struct fwr_write words[] = FWR_RESET_WRITES;

    fwr_write_all(words, sizeof(words) / sizeof(words[0]));
    for (volatile uint32_t turn = 0; turn < FWR_WAIT_TURNS; turn++) {}
    __asm__ volatile("movi a2, fwr_start\n\tjx a2");
    __builtin_unreachable();
}

uint32_t fwr_port_identity(uint32_t *words)
{
    FWR_SPECIAL_READ(CONFIGURATION_LOW, words[0]);
    FWR_SPECIAL_READ(CONFIGURATION_HIGH, words[1]);
    return 2;
}

void fwr_port_fatal(void)
{
    for (;;) {
        __asm__ volatile("waiti 15");
    }
}
