/* Products of matrices of int16, the second one transposed; sums of 64 bits. */
#include "arm_nnfunctions.h"

static int64_t product(const int16_t *a, const int16_t *b, int32_t count)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < count; ++i) {
        sum += a[i] * b[i];
    }
    return sum;
}

arm_cmsis_nn_status arm_batch_matmul_s16(const cmsis_nn_context *context,
                                         const cmsis_nn_bmm_params *params,
                                         const cmsis_nn_per_tensor_quant_params *quant,
                                         const cmsis_nn_dims *left, const int16_t *a,
                                         const cmsis_nn_dims *right, const int16_t *b,
                                         const cmsis_nn_dims *output, int16_t *y)
{
    const int32_t rows = output->n * output->h * left->w;
    (void)context;
    for (int32_t at = 0; at < rows * right->w; ++at) {
        const int32_t row = at / right->w, matrix = row / left->w;
        const int16_t *column = b + (matrix * right->w + at % right->w) * right->c;
        const int32_t scaled = stand_in_requantized_wide(
            product(a + row * left->c, column, left->c), quant->multiplier, quant->shift);
        y[at] = (int16_t)stand_in_clipped(scaled, params->fc_params.activation);
    }
    return ARM_CMSIS_NN_SUCCESS;
}
