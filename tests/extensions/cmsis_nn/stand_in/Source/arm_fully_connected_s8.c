/* A matrix by vectors; where the context has sums, they are the bias with the offset in it. */
#include "arm_nnfunctions.h"

static arm_cmsis_nn_status connected(const int32_t *sums, const cmsis_nn_fc_params *params,
                                     const int32_t *multiplier, const int32_t *shift, int32_t step,
                                     const cmsis_nn_dims *input, const int8_t *x,
                                     const cmsis_nn_dims *filter, const int8_t *w,
                                     const int32_t *bias, const cmsis_nn_dims *output, int8_t *y)
{
    for (int32_t n = 0; n < input->n; ++n, x += filter->n) {
        for (int32_t c = 0; c < output->c; ++c) {
            int32_t sum = sums ? sums[c] : bias[c];
            for (int32_t i = 0; i < filter->n; ++i) {
                sum += (x[i] + (sums ? 0 : params->input_offset)) * w[c * filter->n + i];
            }
            sum = stand_in_requantized(sum, multiplier[c * step], shift[c * step]);
            *y++ = (int8_t)stand_in_clipped(sum + params->output_offset, params->activation);
        }
    }
    return ARM_CMSIS_NN_SUCCESS;
}

arm_cmsis_nn_status arm_fully_connected_s8(const cmsis_nn_context *context,
                                           const cmsis_nn_fc_params *params,
                                           const cmsis_nn_per_tensor_quant_params *quant,
                                           const cmsis_nn_dims *input, const int8_t *x,
                                           const cmsis_nn_dims *filter, const int8_t *w,
                                           const cmsis_nn_dims *channels, const int32_t *bias,
                                           const cmsis_nn_dims *output, int8_t *y)
{
    (void)channels;
    return connected(context->buf, params, &quant->multiplier, &quant->shift, 0, input, x, filter,
                     w, bias, output, y);
}

arm_cmsis_nn_status arm_fully_connected_per_channel_s8(
    const cmsis_nn_context *context, const cmsis_nn_fc_params *params,
    const cmsis_nn_per_channel_quant_params *quant, const cmsis_nn_dims *input, const int8_t *x,
    const cmsis_nn_dims *filter, const int8_t *w, const cmsis_nn_dims *channels,
    const int32_t *bias, const cmsis_nn_dims *output, int8_t *y)
{
    (void)channels;
    return connected(context->buf, params, quant->multiplier, quant->shift, 1, input, x, filter, w,
                     bias, output, y);
}
