/* cortex_m.h: what the files of this port share: registers of the core, drivers, linker symbols.
 *
 * Addresses are those of the Armv6-M, v7-M and v8-M architecture manuals, equal on every
 * Cortex-M. fwr_board.h is generated from board.toml: name, driver addresses, counter scale.
 */
#ifndef FWR_CORTEX_M_H
#define FWR_CORTEX_M_H

#include <stdint.h>

#include "fwr_board.h"
#include "fwr_port.h"
#include "fwr_wait.h"

/* ---- Registers of every Cortex-M ----------------------------------------------------------- */

#define SYST_CSR FWR_REG(0xE000E010u) /* SysTick control */
#define SYST_RVR FWR_REG(0xE000E014u) /* reload value */
#define SYST_CVR FWR_REG(0xE000E018u) /* current value */
#define SCB_ICSR FWR_REG(0xE000ED04u)
#define SCB_VTOR FWR_REG(0xE000ED08u) /* optional on Armv6-M */
#define SCB_AIRCR FWR_REG(0xE000ED0Cu)
#define SCB_CCR FWR_REG(0xE000ED14u)
#define SCB_CFSR FWR_REG(0xE000ED28u) /* from here on: not on Armv6-M */
#define SCB_HFSR FWR_REG(0xE000ED2Cu)
#define SCB_MMFAR FWR_REG(0xE000ED34u)
#define SCB_BFAR FWR_REG(0xE000ED38u)
#define SCB_CPACR FWR_REG(0xE000ED88u)
#define MPU_TYPE FWR_REG(0xE000ED90u) /* Armv7-M layout */
#define MPU_CTRL FWR_REG(0xE000ED94u)
#define MPU_RNR FWR_REG(0xE000ED98u)
#define MPU_RBAR FWR_REG(0xE000ED9Cu)
#define MPU_RASR FWR_REG(0xE000EDA0u)

#define SCB_ICSR_PENDSTSET (1u << 26)
#define SCB_AIRCR_SYSRESETREQ (0x05FA0000u | (1u << 2))
#define SCB_CCR_LOB (1u << 19)          /* Armv8.1-M: low-overhead branches */
#define SCB_CPACR_FPU_FULL (0xFu << 20) /* coprocessors 10 and 11: FPU and MVE */

#define MPU_CTRL_ENABLE (1u << 0)
#define MPU_CTRL_PRIVDEFENA (1u << 2) /* the usual map where no region says otherwise */
#define MPU_RASR_ENABLE (1u << 0)
#define MPU_RASR_XN (1u << 28) /* access bits zero: no access at all */

/* ---- Drivers, one of each kind is linked ---------------------------------------------------- */

/* Boards that stay at the clock after reset have no clock driver. FWR_CLOCK_RAISED_HZ is what the
 * driver raises it to; where that fails, FWR_CLOCK_HZ stays. */
void fwr_clock_init(void);
int fwr_clock_is_raised(void);

void fwr_caches_init(void); /* where the board asks for it */

/* The console's clock as it is behind fwr_clock_init. */
#if defined(FWR_CLOCK_RAISED_HZ)
#define FWR_CONSOLE_NOW_HZ (fwr_clock_is_raised() ? FWR_CONSOLE_RAISED_HZ : FWR_CONSOLE_HZ)
#else
#define FWR_CONSOLE_NOW_HZ FWR_CONSOLE_HZ
#endif

void fwr_console_init(void); /* the driver also defines fwr_port_byte_in and fwr_port_byte_out */
void fwr_counter_init(void); /* the driver also defines fwr_port_counter */

/* ---- Interrupts and faults ----------------------------------------------------------------- */

void fwr_systick_isr(void); /* defined by the SysTick counter; weak default in startup.c */

/* ---- Symbols of the linker script ----------------------------------------------------------- */

extern uint32_t fwr_ld_data_start[], fwr_ld_data_end[];
extern const uint32_t fwr_ld_data_load[];
extern uint32_t fwr_ld_bss_start[], fwr_ld_bss_end[];
extern uint32_t fwr_ld_stack_low[], fwr_ld_stack_high[];

#endif
