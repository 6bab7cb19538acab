/* A matrix of int8 by vectors of int16. */
#include "arm_nnfunctions.h"

arm_cmsis_nn_status arm_fully_connected_s16(const cmsis_nn_context *context,
                                            const cmsis_nn_fc_params *params,
                                            const cmsis_nn_per_tensor_quant_params *quant,
                                            const cmsis_nn_dims *input, const int16_t *x,
                                            const cmsis_nn_dims *filter, const int8_t *w,
                                            const cmsis_nn_dims *channels, const int64_t *bias,
                                            const cmsis_nn_dims *output, int16_t *y)
{
    (void)context;
    (void)channels;
    for (int32_t n = 0; n < input->n; ++n, x += filter->n) {
        for (int32_t c = 0; c < output->c; ++c) {
            int64_t sum = bias[c];
            for (int32_t i = 0; i < filter->n; ++i) {
                sum += x[i] * w[c * filter->n + i];
            }
            const int32_t scaled = stand_in_requantized_wide(sum, quant->multiplier, quant->shift);
            *y++ = (int16_t)stand_in_clipped(scaled, params->activation);
        }
    }
    return ARM_CMSIS_NN_SUCCESS;
}
