/* SPDX-License-Identifier: Apache-2.0 */
/* console_pl011.c: a PL011 without pins to route. */
#include "fwr_pl011.h"

void fwr_console_init(void)
{
    start_uart();
}
