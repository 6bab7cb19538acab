/* Both terms brought to one scale, added, brought to the output's. */
#include "arm_nnfunctions.h"

arm_cmsis_nn_status arm_elementwise_add_s8(
    const int8_t *a, const int8_t *b, const int32_t a_offset, const int32_t a_multiplier,
    const int32_t a_shift, const int32_t b_offset, const int32_t b_multiplier,
    const int32_t b_shift, const int32_t left_shift, int8_t *y, const int32_t y_offset,
    const int32_t y_multiplier, const int32_t y_shift, const int32_t low, const int32_t high,
    const int32_t count)
{
    const cmsis_nn_activation range = {low, high};
    for (int32_t i = 0; i < count; ++i) {
        const int32_t left = (a[i] + a_offset) * (1 << left_shift);
        const int32_t right = (b[i] + b_offset) * (1 << left_shift);
        const int32_t sum = stand_in_requantized(left, a_multiplier, a_shift) +
                            stand_in_requantized(right, b_multiplier, b_shift);
        y[i] = stand_in_clipped(stand_in_requantized(sum, y_multiplier, y_shift) + y_offset, range);
    }
    return ARM_CMSIS_NN_SUCCESS;
}
