/* Products of matrices of int8, the second one transposed. */
#include "arm_nnfunctions.h"

arm_cmsis_nn_status arm_batch_matmul_s8(const cmsis_nn_context *context,
                                        const cmsis_nn_bmm_params *params,
                                        const cmsis_nn_per_tensor_quant_params *quant,
                                        const cmsis_nn_dims *left, const int8_t *a,
                                        const cmsis_nn_dims *right, const int8_t *b,
                                        const cmsis_nn_dims *output, int8_t *y)
{
    (void)context;
    for (int32_t n = 0; n < output->n * output->h; ++n, b += right->w * right->c) {
        for (int32_t row = 0; row < left->w; ++row, a += left->c) {
            for (int32_t column = 0; column < right->w; ++column) {
                int32_t sum = 0;
                for (int32_t i = 0; i < left->c; ++i) {
                    sum += (a[i] + params->fc_params.input_offset) *
                           (b[column * right->c + i] + params->fc_params.filter_offset);
                }
                sum = stand_in_requantized(sum, quant->multiplier, quant->shift);
                *y++ = (int8_t)stand_in_clipped(sum + params->fc_params.output_offset,
                                                params->fc_params.activation);
            }
        }
    }
    return ARM_CMSIS_NN_SUCCESS;
}
