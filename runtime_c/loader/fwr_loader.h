/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_loader.h: the loader's commands. ABI.md has their payloads. */
#ifndef FWR_LOADER_H
#define FWR_LOADER_H

#include <stdint.h>

#include "port/fwr_port.h"

#define FWR_LOADER_VERSION 1u

/* No number of these is one of enum fwr_command: an application knows none of them. */
enum fwr_loader_command {
    FWR_LOADER_HELLO = 32,
    FWR_LOADER_SLOT = 33,
    FWR_LOADER_CHECK = 34,
    FWR_LOADER_WRITE = 35,
    FWR_LOADER_READ = 36,
    FWR_LOADER_COMMIT = 37,
    FWR_LOADER_CONFIRM = 38,
    FWR_LOADER_BOOT = 39
};

/* Starts what is in the slots, unless somebody is heard on the line first. */
FWR_NORETURN void fwr_loader(void);

/* start_PORT.c: leaves for the application whose vectors, or first instruction, are at `entry`. */
FWR_NORETURN void fwr_loader_leave(uint32_t entry);

#endif
