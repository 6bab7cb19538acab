/* SPDX-License-Identifier: Apache-2.0 */
/* console_rp2_uart.c: the PL011 of RP2040 and RP2350 and its pins (RP2040 data sheet, 2.19 and 4.2;
 * RP2350 data sheet, 9 and 12.1).
 */
#include "fwr_pl011.h"
#include "rp2.h"

#define CLOCKS_PERIPHERALS FWR_REG(RP2_CLOCKS + 0x48u)
#define PERIPHERALS_ON (1u << 11) /* from the processor clock */

#define IO_FUNCTION(pin) FWR_REG(RP2_IO + 8u * (pin) + 4u)
#define FUNCTION_UART 2u
#define PAD(pin) FWR_REG(RP2_PADS + 4u * (pin) + 4u)
#define PAD_INPUT_4_MA 0x56u /* input, Schmitt trigger, pull-down, not isolated */

static void route(uint32_t pin)
{
    PAD(pin) = PAD_INPUT_4_MA;
    IO_FUNCTION(pin) = FUNCTION_UART;
}

void fwr_console_init(void)
{
    (void)fwr_rp2_wake(RP2_RESET_IO | RP2_RESET_PADS | RP2_RESET_UART0);
    CLOCKS_PERIPHERALS = PERIPHERALS_ON;
    start_uart();
    route(FWR_CONSOLE_TX_PIN);
    route(FWR_CONSOLE_RX_PIN);
}
