/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_bootloader.h: the bootloader's commands. ABI.md specifies their payloads. */
#ifndef FWR_BOOTLOADER_H
#define FWR_BOOTLOADER_H

#include <stdint.h>

#include "port/fwr_port.h"

#define FWR_BOOTLOADER_VERSION 1u

/* Distinct from enum fwr_command: applications do not know these commands. */
enum fwr_bootloader_command {
    FWR_BOOTLOADER_HELLO = 32,
    FWR_BOOTLOADER_SLOT = 33,
    FWR_BOOTLOADER_CHECK = 34,
    FWR_BOOTLOADER_WRITE = 35,
    FWR_BOOTLOADER_READ = 36,
    FWR_BOOTLOADER_COMMIT = 37,
    FWR_BOOTLOADER_CONFIRM = 38,
    FWR_BOOTLOADER_BOOT = 39
};

/* Starts the newest image unless a host is heard first. */
FWR_NORETURN void fwr_bootloader(void);

/* start_PORT.c: jumps to the application with its vector table or first instruction at `entry`. */
FWR_NORETURN void fwr_bootloader_leave(uint32_t entry);

#endif
