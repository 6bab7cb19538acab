/* board_app.c: test firmware that runs a range of kernels per request.
 *
 * A request holds the sample, the pattern (0 or 255), the first kernel and the end of the range. The
 * answer holds, for each kernel, the status of conform_run and the CRC-32 of the result. Inputs are
 * generated as on the host (random_inputs.py). For an empty range, the first answer is the CRC-32 of
 * program and constants.
 */
#include "fwr.h"
#include "harness.h"

#define SAMPLE_EXTREMES 1u
#define SAMPLE_MOSTLY_ONE_VALUE 2u
#define FLOAT_STEPS 4096.0f

static uint32_t request[4];
static uint32_t answers[CONFORM_KERNELS][2];
static uint32_t result_crc;

/* Return random value `i` of the sequence; its first byte selects the kind of value. */
static int32_t drawn(uint32_t seed, uint32_t i, uint32_t is_wide, int32_t usual)
{
    const uint32_t first = conform_byte(seed, i << is_wide);
    if (request[0] == SAMPLE_EXTREMES) {
        const int32_t most = is_wide ? INT16_MAX : INT8_MAX;
        return first & 1u ? most : -most - 1;
    }
    if (request[0] == SAMPLE_MOSTLY_ONE_VALUE && first >= 20u) {
        return is_wide ? usual * 257 : usual;
    }
    return is_wide ? (int16_t)(first | (uint32_t)conform_byte(seed, 2 * i + 1) << 8)
                   : (int8_t)first;
}

static void draw(const struct conform_argument *argument, uint32_t seed, int32_t usual, uint8_t *to)
{
    switch (argument->kind) {
    case CONFORM_INT16:
        for (uint32_t i = 0; i < argument->bytes / sizeof(int16_t); ++i) {
            ((int16_t *)(void *)to)[i] = (int16_t)drawn(seed, i, 1, usual);
        }
        break;
    case CONFORM_FLOAT32:
        for (uint32_t i = 0; i < argument->bytes / sizeof(float); ++i) {
            ((float *)(void *)to)[i] = (float)drawn(seed, i, 1, usual) / FLOAT_STEPS;
        }
        break;
    default:
        for (uint32_t i = 0; i < argument->bytes; ++i) {
            to[i] = (uint8_t)drawn(seed, i, 0, usual);
        }
        break;
    }
}

void conform_input(const struct conform_kernel *kernel, uint32_t position, uint8_t *to)
{
    const uint32_t seed = kernel->layer * 16u + position * 4u + request[0];
    const int32_t usual = (int32_t)(kernel->layer % 251u) - 125;
    for (uint32_t k = 0; k < kernel->count; ++k) {
        if (kernel->arguments[k].role == CONFORM_IN && position-- == 0) {
            draw(&kernel->arguments[k], seed, usual, to);
            return;
        }
    }
}

void conform_output(const uint8_t *from, uint32_t bytes)
{
    result_crc = conform_crc(0, from, bytes);
}

/* The last bytes of program and constants are followed by the first values of .data. */
extern const uint8_t fwr_ld_data_load[];

static uint32_t program_crc(void)
{
    const uint8_t *const start = (const uint8_t *)(uintptr_t)CONFORM_PROGRAM_START;
    return conform_crc(0, start, (uint32_t)(fwr_ld_data_load - start));
}

static int32_t run(void)
{
    if (request[3] == 0) {
        answers[0][0] = program_crc();
    }
    for (uint32_t k = request[2]; k < request[3] && k < CONFORM_KERNELS; ++k) {
        answers[k][0] = (uint32_t)conform_run(k, (uint8_t)request[1]);
        answers[k][1] = result_crc;
    }
    return 0;
}

static const struct fwr_tensor inputs[] = {{"request", request, sizeof request, FWR_UINT32}};
static const struct fwr_tensor outputs[] = {{"answers", answers, sizeof answers, FWR_UINT32}};

const struct fwr_model fwr_app_model = {
    .name = "conform",
    .id = {0},
    .inputs = inputs,
    .outputs = outputs,
    .input_count = 1,
    .output_count = 1,
    .run = run,
};
