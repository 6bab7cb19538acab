/* twice.h: the smallest model with the interface of a generated one: y = saturate(2 x). */
#ifndef TWICE_H
#define TWICE_H

#include <stdint.h>

#define TWICE_INPUT_1_SIZE 8
#define TWICE_OUTPUT_1_SIZE 8
#define TWICE_SRAM_SIZE 16
#define TWICE_SRAM_ALIGN 16

struct twice_inputs {
    int8_t *input_1;
};

struct twice_outputs {
    int8_t *output_1;
};

struct twice_workspace_pools {
    uint8_t *sram;
};

void twice_map_io(const struct twice_workspace_pools *pools, struct twice_inputs *inputs,
                  struct twice_outputs *outputs);
int32_t twice_run(const struct twice_inputs *inputs, const struct twice_outputs *outputs,
                  const struct twice_workspace_pools *pools);

#endif
