/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_config.h: the options of the runtime, their defaults and costs.
 *
 * Set options on the compiler's command line (-DFWR_PROFILE=1) instead of editing this file.
 * Compile all files of an image (runtime, glue, model) with the same values.
 */
#ifndef FWR_CONFIG_H
#define FWR_CONFIG_H

/* 1 in a profile image: probes measure each operator. Costs 16 bytes of RAM per operator. */
#ifndef FWR_PROFILE
#define FWR_PROFILE 0
#endif

/* 1 in a debug image: guard bytes around each pool are checked before and after every operator.
 * Costs 2 * FWR_GUARD_BYTES of RAM per pool. */
#ifndef FWR_GUARDS
#define FWR_GUARDS 0
#endif

/* 1 if the board's watchdog is used: it is kicked at every operator and while waiting for bytes,
 * and a restart by the watchdog is reported. Costs 68 bytes of RAM. */
#ifndef FWR_WATCHDOG
#define FWR_WATCHDOG 0
#endif

/* 1 if an input or output is in a pool that only an accelerator can access. The port copies it. */
#ifndef FWR_PRIVATE_IO
#define FWR_PRIVATE_IO 0
#endif

/* Size of a guard area in bytes; a multiple of every pool's alignment. */
#ifndef FWR_GUARD_BYTES
#define FWR_GUARD_BYTES 64
#endif

/* Largest payload of a frame in bytes, 64 to 65000. Costs as much RAM. */
#ifndef FWR_LINK_PAYLOAD_MAX
#define FWR_LINK_PAYLOAD_MAX 256
#endif

/* 1 in tests: assertions state what the code relies on, and end the program if it does not hold.
 * No condition depends on what the host sends. Costs about 1.5 KiB of flash and the C library's
 * assert(). Define FWR_ASSERT for another reaction. */
#ifndef FWR_ASSERTIONS
#define FWR_ASSERTIONS 0
#endif
#ifndef FWR_ASSERT
#if FWR_ASSERTIONS
#include <assert.h>
#define FWR_ASSERT(condition) assert(condition)
#else
#define FWR_ASSERT(condition) ((void)0)
#endif
#endif

/* Bytes below the stack pointer left unpainted, for interrupts and callees. */
#ifndef FWR_STACK_MARGIN
#define FWR_STACK_MARGIN 128
#endif

#endif
