/* SPDX-License-Identifier: Apache-2.0 */
/* serial.h: the UART, from reset to the start of an image. */
#ifndef SERIAL_H
#define SERIAL_H

#include <boot_serial/boot_serial.h>

void serial_init(void);
void serial_deinit(void);
extern const struct boot_uart_funcs serial_functions;

#endif
