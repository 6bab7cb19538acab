/* fwr_app.c: registers the model `twice` with the runtime, like generated glue. */
#include "fwr.h"
#include "twice.h"

#if FWR_ABI != 2
#error "written for another runtime"
#endif

static uint8_t sram[TWICE_SRAM_SIZE] __attribute__((aligned(TWICE_SRAM_ALIGN)));

static const struct fwr_tensor inputs[] = {{"input_1", sram, TWICE_INPUT_1_SIZE, FWR_INT8}};
static const struct fwr_tensor outputs[] = {
    {"output_1", sram + TWICE_INPUT_1_SIZE, TWICE_OUTPUT_1_SIZE, FWR_INT8},
};

#if FWR_PROFILE
static struct fwr_operator operators[1];
#endif

static int32_t run(void)
{
    struct twice_workspace_pools pools = {.sram = sram};
    struct twice_inputs in;
    struct twice_outputs out;

    twice_map_io(&pools, &in, &out);
    return twice_run(&in, &out, &pools);
}

const struct fwr_model fwr_app_model = {
    .name = "twice",
    .id = {0x74, 0x77, 0x69, 0x63, 0x65},
    .inputs = inputs,
    .outputs = outputs,
    .input_count = 1,
    .output_count = 1,
    .operator_count = 1,
    .run = run,
#if FWR_PROFILE
    .operators = operators,
#endif
};
