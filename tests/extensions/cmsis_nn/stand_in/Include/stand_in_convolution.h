/* Convolution, and depthwise convolution: one sum for each output.
 *
 * VALUE is the type of activations, SUM that of sums; both are set before this is included.
 */
#include "arm_nnfunctions.h"

struct layer {
    const cmsis_nn_dims *input, *filter, *output;
    cmsis_nn_tile stride, padding, dilation;
    int32_t offset, depth, multiple; /* channels summed over; outputs of each, 0: every one */
};

static SUM sum_at(const struct layer *layer, const VALUE *x, const int8_t *w, int32_t oy,
                  int32_t ox, int32_t channel)
{
    const int32_t taps = layer->filter->h * layer->filter->w;
    const int32_t first = layer->multiple ? channel / layer->multiple : 0;
    SUM sum = 0;
    for (int32_t tap = 0; tap < taps; ++tap) {
        const int32_t ky = tap / layer->filter->w, kx = tap % layer->filter->w;
        const int32_t iy = oy * layer->stride.h - layer->padding.h + ky * layer->dilation.h;
        const int32_t ix = ox * layer->stride.w - layer->padding.w + kx * layer->dilation.w;
        if (iy < 0 || ix < 0 || iy >= layer->input->h || ix >= layer->input->w) {
            continue;
        }
        const int32_t at = layer->multiple ? tap * layer->output->c + channel
                                           : (channel * taps + tap) * layer->depth;
        const VALUE *pixel = x + (iy * layer->input->w + ix) * layer->input->c + first;
        for (int32_t i = 0; i < layer->depth; ++i) {
            sum += (pixel[i] + layer->offset) * w[at + i];
        }
    }
    return sum;
}

static arm_cmsis_nn_status run(const struct layer *layer, const VALUE *x, const int8_t *w,
                               const void *bias, bool is_narrow,
                               const cmsis_nn_per_channel_quant_params *quant, int32_t offset,
                               cmsis_nn_activation range, VALUE *y)
{
    for (int32_t n = 0; n < layer->input->n; ++n) {
        for (int32_t at = 0; at < layer->output->h * layer->output->w; ++at) {
            for (int32_t c = 0; c < layer->output->c; ++c) {
                const int32_t oy = at / layer->output->w, ox = at % layer->output->w;
                const int32_t multiplier = quant->multiplier[c], shift = quant->shift[c];
                const SUM sum = sum_at(layer, x, w, oy, ox, c);
                const int32_t scaled =
                    is_narrow ? stand_in_requantized((int32_t)sum + ((const int32_t *)bias)[c],
                                                     multiplier, shift)
                              : stand_in_requantized_wide(sum + ((const int64_t *)bias)[c],
                                                          multiplier, shift);
                *y++ = (VALUE)stand_in_clipped(scaled + offset, range);
            }
        }
        x += layer->input->h * layer->input->w * layer->input->c;
    }
    return ARM_CMSIS_NN_SUCCESS;
}
