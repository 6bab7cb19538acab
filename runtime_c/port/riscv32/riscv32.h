/* SPDX-License-Identifier: Apache-2.0 */
/* riscv32.h: machine registers shared by this port's files. */
#ifndef FWR_RISCV32_H
#define FWR_RISCV32_H

#include <stdint.h>

#include "fwr_drivers.h"

/* Reads or writes a control and status register by name, even if -march lacks Zicsr. */
#define FWR_CSR_READ(name, value) \
    __asm__ volatile(".option push\n\t.option arch, +zicsr\n\tcsrr %0, " name "\n\t.option pop" \
                     : "=r"(value)::"memory")
#define FWR_CSR_WRITE(name, value) \
    __asm__ volatile(".option push\n\t.option arch, +zicsr\n\tcsrw " name \
                     ", %0\n\t.option pop" ::"r"(value) \
                     : "memory")

#endif
