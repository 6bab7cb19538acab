/* Sums and products of int8. */
#define VALUE int8_t
#include "stand_in_elementwise.h"

arm_cmsis_nn_status arm_elementwise_add_s8(const int8_t *a, const int8_t *b, const int32_t a_offset,
                                           const int32_t a_multiplier, const int32_t a_shift,
                                           const int32_t b_offset, const int32_t b_multiplier,
                                           const int32_t b_shift, const int32_t left_shift,
                                           int8_t *y, const int32_t y_offset,
                                           const int32_t y_multiplier, const int32_t y_shift,
                                           const int32_t low, const int32_t high,
                                           const int32_t count)
{
    const struct step left = {a_offset, a_multiplier, a_shift};
    const struct step right = {b_offset, b_multiplier, b_shift};
    const struct step after = {y_offset, y_multiplier, y_shift};
    const cmsis_nn_activation range = {low, high};
    for (int32_t i = 0; i < count; ++i) {
        const int32_t sum = term(a[i], left, left_shift) + term(b[i], right, left_shift);
        y[i] = result(sum, after, range);
    }
    return ARM_CMSIS_NN_SUCCESS;
}

arm_cmsis_nn_status arm_elementwise_mul_s8(const int8_t *a, const int8_t *b, const int32_t a_offset,
                                           const int32_t b_offset, int8_t *y,
                                           const int32_t y_offset, const int32_t y_multiplier,
                                           const int32_t y_shift, const int32_t low,
                                           const int32_t high, const int32_t count)
{
    const struct step after = {y_offset, y_multiplier, y_shift};
    const cmsis_nn_activation range = {low, high};
    for (int32_t i = 0; i < count; ++i) {
        y[i] = result((a[i] + a_offset) * (b[i] + b_offset), after, range);
    }
    return ARM_CMSIS_NN_SUCCESS;
}
