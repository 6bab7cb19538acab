/* SPDX-License-Identifier: Apache-2.0 */
/* xtensa.h: special registers shared by this port's files. */
#ifndef FWR_XTENSA_H
#define FWR_XTENSA_H

#include <stdint.h>

#include "fwr_drivers.h"

/* Reads a special register by its name or number. */
#define FWR_SPECIAL_READ(name, value) __asm__ volatile("rsr %0, " name : "=r"(value)::"memory")

#endif
