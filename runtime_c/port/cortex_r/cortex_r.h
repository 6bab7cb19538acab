/* SPDX-License-Identifier: Apache-2.0 */
/* cortex_r.h: system registers shared by this port's files (Armv7-A and -R Architecture Reference
 * Manual, B6). */
#ifndef FWR_CORTEX_R_H
#define FWR_CORTEX_R_H

#include <stdint.h>

#include "fwr_drivers.h"

/* Registers of coprocessor 15, as the operands behind the core's register. */
#define CP15_MIDR "c0, c0, 0"
#define CP15_SCTLR "c1, c0, 0"
#define CP15_DFSR "c5, c0, 0"
#define CP15_IFSR "c5, c0, 1"
#define CP15_DFAR "c6, c0, 0"
#define CP15_IFAR "c6, c0, 2"
#define CP15_DRBAR "c6, c1, 0"
#define CP15_DRSR "c6, c1, 2"
#define CP15_DRACR "c6, c1, 4"
#define CP15_RGNR "c6, c2, 0"
#define CP15_PMCR "c9, c12, 0"
#define CP15_PMCNTENSET "c9, c12, 1"
#define CP15_PMCCNTR "c9, c13, 0"

#define CP15_READ(name, value) __asm__ volatile("mrc p15, 0, %0, " name : "=r"(value)::"memory")
#define CP15_WRITE(name, value) \
    __asm__ volatile("mcr p15, 0, %0, " name "\n\tisb" ::"r"(value) : "memory")

#endif
