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

/* Largest payload of a frame, in bytes, 64 to 65000. Costs its value in RAM. */
#ifndef FWR_LINK_PAYLOAD_MAX
#define FWR_LINK_PAYLOAD_MAX 256
#endif

/* Bytes below the stack pointer that painting leaves alone, for interrupts and callees. */
#ifndef FWR_STACK_MARGIN
#define FWR_STACK_MARGIN 128
#endif

#endif
