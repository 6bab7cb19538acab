/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_server.h: commands and frame kinds of the link. ABI.md specifies their payloads. */
#ifndef FWR_SERVER_H
#define FWR_SERVER_H

#include <stdint.h>

/* Version of the messages below; the first two bytes of a hello answer. */
#define FWR_LINK_VERSION 4u

enum fwr_command {
    FWR_HELLO = 1,
    FWR_TEXT = 2,
    FWR_TENSOR = 3,
    FWR_WRITE_INPUT = 4,
    FWR_WRITE_PARAMS = 5,
    FWR_RUN = 6,
    FWR_READ_OUTPUT = 7,
    FWR_PROFILE_READ = 8,
    FWR_STACK = 9,
    FWR_RESET = 10,
    FWR_BAUD = 11,
    FWR_STEP = 12,
    FWR_TAP_READ = 13,
    FWR_IDENTITY = 14
};

#define FWR_KIND_ANSWER 0x80u  /* added to the command in its answer */
#define FWR_KIND_STARTED 0xfdu /* the firmware has started */
#define FWR_KIND_DAMAGED 0xfeu /* the firmware received a damaged frame */
#define FWR_KIND_FAULT 0xffu   /* a fault report instead of an answer */

#define FWR_RUN_CHECKSUMS 1u /* flag of FWR_RUN */
#define FWR_TAP_ALL 0xffffu  /* FWR_RUN: pause after every operator */

/* Called by the probe after an operator in a profile image. If the run pauses here, serves the link
 * until the host continues it. `data` is the operator's first output. */
void fwr_server_tap(uint32_t operator_index, const void *data, uint32_t size_bytes);

#endif
