/* SPDX-License-Identifier: Apache-2.0 */
/* cortex_m.h: core registers and fault handling shared by this port's files.
 *
 * Addresses follow the Armv6-M, v7-M and v8-M architecture manuals and are the same on every
 * Cortex-M.
 */
#ifndef FWR_CORTEX_M_H
#define FWR_CORTEX_M_H

#include <stdint.h>

#include "fwr_drivers.h"

/* ---- Registers of every Cortex-M ----------------------------------------------------------- */

#define SYST_CSR FWR_REG(0xE000E010u) /* SysTick control */
#define SYST_RVR FWR_REG(0xE000E014u) /* reload value */
#define SYST_CVR FWR_REG(0xE000E018u) /* current value */
#define SCB_CPUID FWR_REG(0xE000ED00u)
#define SCB_ICSR FWR_REG(0xE000ED04u)
#define SCB_VTOR FWR_REG(0xE000ED08u) /* optional on Armv6-M */
#define SCB_AIRCR FWR_REG(0xE000ED0Cu)
#define SCB_CCR FWR_REG(0xE000ED14u)
#define SCB_CFSR FWR_REG(0xE000ED28u) /* the following are not on Armv6-M */
#define SCB_HFSR FWR_REG(0xE000ED2Cu)
#define SCB_MMFAR FWR_REG(0xE000ED34u)
#define SCB_BFAR FWR_REG(0xE000ED38u)
#define SCB_CPACR FWR_REG(0xE000ED88u)
#define MPU_TYPE FWR_REG(0xE000ED90u) /* Armv7-M layout */
#define MPU_CTRL FWR_REG(0xE000ED94u)
#define MPU_RNR FWR_REG(0xE000ED98u)
#define MPU_RBAR FWR_REG(0xE000ED9Cu)
#define MPU_RASR FWR_REG(0xE000EDA0u)

#define SCB_ICSR_PENDSTSET 0x04000000u
#define SCB_AIRCR_SYSRESETREQ (0x05FA0000u | (1u << 2))
#define SCB_CCR_LOB (1u << 19)          /* Armv8.1-M: low-overhead branches */
#define SCB_CPACR_FPU_FULL (0xFu << 20) /* coprocessors 10 and 11: FPU and MVE */

#define MPU_CTRL_ENABLE (1u << 0)
#define MPU_CTRL_PRIVDEFENA (1u << 2) /* default map outside the regions */
#define MPU_RASR_ENABLE (1u << 0)
#define MPU_RASR_XN (1u << 28) /* access bits zero: no access */

/* ---- Interrupts and faults ----------------------------------------------------------------- */

void fwr_systick_isr(void); /* defined by the SysTick counter; weak default in startup.c */

#endif
