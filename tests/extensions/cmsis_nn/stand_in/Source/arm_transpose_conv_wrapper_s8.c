/* Transposed convolution: every output gathers the taps that reach it. */
#include "arm_nnfunctions.h"

arm_cmsis_nn_status arm_transpose_conv_wrapper_s8(
    const cmsis_nn_context *context, const cmsis_nn_context *turn,
    const cmsis_nn_transpose_conv_params *params, const cmsis_nn_per_channel_quant_params *quant,
    const cmsis_nn_dims *input, const int8_t *x, const cmsis_nn_dims *filter, const int8_t *w,
    const cmsis_nn_dims *channels, const int32_t *bias, const cmsis_nn_dims *output, int8_t *y)
{
    (void)context;
    (void)turn;
    (void)channels;
    for (int32_t at = 0; at < output->n * output->h * output->w * output->c; ++at) {
        const int32_t c = at % output->c, ox = at / output->c % output->w;
        const int32_t oy = at / output->c / output->w % output->h;
        const int8_t *image =
            x + at / output->c / output->w / output->h * input->h * input->w * input->c;
        int32_t sum = bias[c];
        for (int32_t tap = 0; tap < filter->h * filter->w; ++tap) {
            const int32_t down = oy + params->padding.h - tap / filter->w;
            const int32_t right = ox + params->padding.w - tap % filter->w;
            const int32_t iy = down / params->stride.h, ix = right / params->stride.w;
            if (down < 0 || right < 0 || down % params->stride.h || right % params->stride.w ||
                iy >= input->h || ix >= input->w) {
                continue;
            }
            for (int32_t i = 0; i < input->c; ++i) {
                sum += (image[(iy * input->w + ix) * input->c + i] + params->input_offset) *
                       w[(c * filter->h * filter->w + tap) * input->c + i];
            }
        }
        sum = stand_in_requantized(sum, quant->multiplier[c], quant->shift[c]);
        y[at] = (int8_t)stand_in_clipped(sum + params->output_offset, params->activation);
    }
    return ARM_CMSIS_NN_SUCCESS;
}
