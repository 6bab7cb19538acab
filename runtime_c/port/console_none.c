/* SPDX-License-Identifier: Apache-2.0 */
/* console_none.c: a board without a link. The firmware runs, but no host can talk to it; a main
 * program of one's own uses other inputs and outputs.
 */
#include "fwr_drivers.h"

void fwr_console_init(void) {}

int32_t fwr_port_byte_in(void)
{
    return -1;
}

void fwr_port_byte_out(uint8_t byte)
{
    (void)byte;
}
