/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_config.h: every option of the runtime, its default and what it costs.
 *
 * Set an option on the compiler's command line (-DFWR_PROFILE=1); nothing here is edited. All
 * files of one image (runtime, glue, model) are compiled with the same values.
 */
#ifndef FWR_CONFIG_H
#define FWR_CONFIG_H

/* 1 in a profile image: probes count each operator. 16 bytes of RAM an operator, in the glue. */
#ifndef FWR_PROFILE
#define FWR_PROFILE 0
#endif

/* 1 in a debug image: each pool lies between two fences, which are looked at around every operator.
 * Twice FWR_GUARD_BYTES of RAM a pool. */
#ifndef FWR_GUARDS
#define FWR_GUARDS 0
#endif

/* 1 where the board's watchdog has a time-out: it is fed around every operator and while the line
 * is waited for, and a restart by it is told. 68 bytes of RAM. */
#ifndef FWR_WATCHDOG
#define FWR_WATCHDOG 0
#endif

/* A multiple of every pool's alignment. */
#ifndef FWR_GUARD_BYTES
#define FWR_GUARD_BYTES 64
#endif

/* Largest payload of a frame, in bytes, 64 to 65000. Costs its value in RAM. */
#ifndef FWR_LINK_PAYLOAD_MAX
#define FWR_LINK_PAYLOAD_MAX 256
#endif

/* Bytes below the stack pointer that painting leaves alone, for interrupts and callees. */
#ifndef FWR_STACK_MARGIN
#define FWR_STACK_MARGIN 128
#endif

#endif
