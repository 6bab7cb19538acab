/* fwr_loop.h: the commands of the link and the kinds of its frames. ABI.md has their payloads. */
#ifndef FWR_LOOP_H
#define FWR_LOOP_H

/* Version of the messages below; the first byte pair of a hello. */
#define FWR_LINK_VERSION 1u

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
    FWR_RESET = 10
};

#define FWR_KIND_ANSWER 0x80u  /* added to the command in its answer */
#define FWR_KIND_DAMAGED 0xfeu /* the device received bytes that were no frame */
#define FWR_KIND_FAULT 0xffu   /* a fault report instead of an answer */

#define FWR_RUN_CHECKSUMS 1u /* flag of FWR_RUN */

#endif
