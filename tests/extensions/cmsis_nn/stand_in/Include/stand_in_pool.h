/* The greatest value of a window, and the mean of it, halves away from zero.
 *
 * VALUE is the type of activations; it is set before this is included.
 */
#include "arm_nnfunctions.h"

static void image(const cmsis_nn_pool_params *params, const cmsis_nn_dims *input, const VALUE *x,
                  const cmsis_nn_dims *filter, const cmsis_nn_dims *output, VALUE *y, int is_mean)
{
    for (int32_t at = 0; at < output->h * output->w * input->c; ++at) {
        const int32_t c = at % input->c, ox = at / input->c % output->w;
        const int32_t oy = at / input->c / output->w;
        int32_t sum = 0, count = 0, greatest = INT16_MIN;
        for (int32_t tap = 0; tap < filter->h * filter->w; ++tap) {
            const int32_t iy = oy * params->stride.h - params->padding.h + tap / filter->w;
            const int32_t ix = ox * params->stride.w - params->padding.w + tap % filter->w;
            if (iy >= 0 && ix >= 0 && iy < input->h && ix < input->w) {
                const int32_t value = x[(iy * input->w + ix) * input->c + c];
                sum += value;
                count += 1;
                greatest = value > greatest ? value : greatest;
            }
        }
        const int32_t mean = (sum > 0 ? sum + count / 2 : sum - count / 2) / count;
        y[at] = (VALUE)stand_in_clipped(is_mean ? mean : greatest, params->activation);
    }
}

static arm_cmsis_nn_status pool(const cmsis_nn_pool_params *params, const cmsis_nn_dims *input,
                                const VALUE *x, const cmsis_nn_dims *filter,
                                const cmsis_nn_dims *output, VALUE *y, int is_mean)
{
    for (int32_t n = 0; n < input->n; ++n) {
        const VALUE *from = x + n * input->h * input->w * input->c;
        image(params, input, from, filter, output, y, is_mean);
        y += output->h * output->w * input->c;
    }
    return ARM_CMSIS_NN_SUCCESS;
}
