/* SPDX-License-Identifier: Apache-2.0 */
/* ethosu_call.h: calls of command streams on an Arm Ethos-U through Arm's driver API. */
#ifndef ETHOSU_CALL_H
#define ETHOSU_CALL_H

#include <stdint.h>

#ifndef ETHOSU_CALL_OUTPUTS_MAX
#define ETHOSU_CALL_OUTPUTS_MAX 16 /* output tensors of a call, 12 bytes each */
#endif

/* Tensors that are not at their offset in the arena are copied, inputs at the start of the call and
 * outputs at its end. */
struct ethosu_call_input {
    const void *data;
    uint32_t offset;
    uint32_t size;
};

struct ethosu_call_output {
    void *data;
    uint32_t offset;
    uint32_t size;
};

/* Sizes are in bytes. `fast` is the memory of region 2, NULL if the stream uses none. */
struct ethosu_call {
    const uint8_t *commands;
    const uint8_t *weights;
    uint8_t *arena;
    uint8_t *fast;
    uint32_t commands_size;
    uint32_t weights_size;
    uint32_t arena_size;
    uint32_t fast_size;
    const struct ethosu_call_input *inputs;
    const struct ethosu_call_output *outputs;
    uint32_t input_count;
    uint32_t output_count;
};

/* Starts a call, after the one in flight. The memory that it names belongs to the NPU until
 * ethosu_call_wait() returns; `inputs` and `outputs` may be local variables. */
void ethosu_call_start(const struct ethosu_call *call);

/* Waits for the call in flight. Returns 0, or another value if a call has failed since the last
 * wait. */
int32_t ethosu_call_wait(void);

#endif
