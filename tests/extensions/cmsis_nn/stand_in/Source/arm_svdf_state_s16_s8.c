/* Each unit sums what its filters found in the last steps, weighed step by step. */
#include "arm_nnfunctions.h"

arm_cmsis_nn_status arm_svdf_state_s16_s8(
    const cmsis_nn_context *first, const cmsis_nn_context *second,
    const cmsis_nn_svdf_params *params, const cmsis_nn_per_tensor_quant_params *in,
    const cmsis_nn_per_tensor_quant_params *out, const cmsis_nn_dims *input, const int8_t *x,
    const cmsis_nn_dims *kept, int16_t *state, const cmsis_nn_dims *features, const int8_t *feature,
    const cmsis_nn_dims *times, const int16_t *time, const cmsis_nn_dims *sums, const int32_t *bias,
    const cmsis_nn_dims *output, int8_t *y)
{
    const int32_t filters = features->n, steps = times->h, units = filters / params->rank;
    int32_t sum = 0;
    (void)first;
    (void)second;
    (void)kept;
    (void)sums;
    (void)output;
    for (int32_t at = 0; at < input->n * filters; ++at, state += steps) {
        const int32_t n = at / filters, f = at % filters, unit = f / params->rank;
        int32_t found = 0, total = f % params->rank ? 0 : bias[unit];
        for (int32_t i = 0; i < input->h; ++i) {
            found += (x[n * input->h + i] - params->input_offset) * feature[f * input->h + i];
        }
        found = stand_in_requantized(found, in->multiplier, in->shift);
        for (int32_t t = 0; t < steps; ++t) {
            state[t] = t + 1 < steps ? state[t + 1]
                                     : (int16_t)stand_in_clipped(found, params->input_activation);
            total += state[t] * time[f * steps + t];
        }
        sum = f % params->rank ? sum + total : total;
        found = stand_in_requantized(sum, out->multiplier, out->shift) + params->output_offset;
        y[n * units + unit] = (int8_t)stand_in_clipped(found, params->output_activation);
    }
    return ARM_CMSIS_NN_SUCCESS;
}
