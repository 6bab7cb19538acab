/* SPDX-License-Identifier: Apache-2.0 */
/* cmsis_compiler.h: what Arm's driver uses of CMSIS-Core, for firmware without CMSIS. */
#ifndef CMSIS_COMPILER_H
#define CMSIS_COMPILER_H

#define __WFE() __asm__ volatile("wfe" ::: "memory")
#define __SEV() __asm__ volatile("sev" ::: "memory")

#endif
