/* Convolutions of int16. */
#define VALUE int16_t
#define SUM int64_t
#include "stand_in_convolution.h"

arm_cmsis_nn_status
arm_convolve_wrapper_s16(const cmsis_nn_context *context, const cmsis_nn_conv_params *params,
                         const cmsis_nn_per_channel_quant_params *quant, const cmsis_nn_dims *input,
                         const int16_t *x, const cmsis_nn_dims *filter, const int8_t *w,
                         const cmsis_nn_dims *channels, const cmsis_nn_bias_data *bias,
                         const cmsis_nn_dims *output, int16_t *y)
{
    const struct layer layer = {input,
                                filter,
                                output,
                                params->stride,
                                params->padding,
                                params->dilation,
                                params->input_offset,
                                input->c,
                                0};
    (void)context;
    (void)channels;
    return run(&layer, x, w, bias->data, bias->is_int32_bias, quant, params->output_offset,
               params->activation, y);
}

arm_cmsis_nn_status arm_depthwise_conv_wrapper_s16(
    const cmsis_nn_context *context, const cmsis_nn_dw_conv_params *params,
    const cmsis_nn_per_channel_quant_params *quant, const cmsis_nn_dims *input, const int16_t *x,
    const cmsis_nn_dims *filter, const int8_t *w, const cmsis_nn_dims *channels,
    const int64_t *bias, const cmsis_nn_dims *output, int16_t *y)
{
    const struct layer layer = {input,
                                filter,
                                output,
                                params->stride,
                                params->padding,
                                params->dilation,
                                params->input_offset,
                                1,
                                params->ch_mult};
    (void)context;
    (void)channels;
    return run(&layer, x, w, bias, false, quant, params->output_offset, params->activation, y);
}
