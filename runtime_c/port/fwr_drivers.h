/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_drivers.h: drivers and linker symbols of a bare-metal board.
 *
 * fwr_board.h is generated from board.toml: name, driver addresses, counter scale.
 */
#ifndef FWR_DRIVERS_H
#define FWR_DRIVERS_H

#include <stdint.h>

#include "fwr_board.h"
#include "fwr_port.h"
#include "fwr_wait.h"

/* ---- Drivers, one of each kind --------------------------------------------------------------- */

/* Boards that keep the reset clock have no clock driver. The driver raises the clock to
 * FWR_CLOCK_RAISED_HZ; on failure it stays at FWR_CLOCK_HZ. */
void fwr_clock_init(void);
int fwr_clock_is_raised(void);

/* Only if the board enables caches. `start` is an address; the lines of a range belong to one
 * buffer. */
void fwr_caches_init(void);
void fwr_cache_clean(uint32_t start, uint32_t size);
void fwr_cache_clean_invalidate(uint32_t start, uint32_t size);
void fwr_cache_invalidate(uint32_t start, uint32_t size);

/* The console's clock after fwr_clock_init(). */
#if defined(FWR_CLOCK_RAISED_HZ)
#define FWR_CONSOLE_NOW_HZ (fwr_clock_is_raised() ? FWR_CONSOLE_RAISED_HZ : FWR_CONSOLE_HZ)
#else
#define FWR_CONSOLE_NOW_HZ FWR_CONSOLE_HZ
#endif

/* For boards with a watchdog timeout. The driver also defines fwr_port_watchdog_kick. */
void fwr_watchdog_init(void);
int fwr_watchdog_has_expired(void); /* its interrupt is being served */

void fwr_console_init(void); /* the driver also defines fwr_port_byte_in and fwr_port_byte_out */
void fwr_counter_init(void); /* the driver also defines fwr_port_counter */

/* ---- Symbols of the linker script ----------------------------------------------------------- */

extern uint32_t fwr_ld_data_start[], fwr_ld_data_end[];
extern const uint32_t fwr_ld_data_load[];
extern uint32_t fwr_ld_ramfunc_start[], fwr_ld_ramfunc_end[];
extern const uint32_t fwr_ld_ramfunc_load[];
extern uint32_t fwr_ld_bss_start[], fwr_ld_bss_end[];
extern uint32_t fwr_ld_stack_low[], fwr_ld_stack_high[];

#endif
