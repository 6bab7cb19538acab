/* value * multiplier * 2^(shift - 31), rounded twice; and cutting to a range. */
#include "arm_nnfunctions.h"

int32_t stand_in_requantized(int32_t value, int32_t multiplier, int32_t shift)
{
    const int32_t left = shift > 0 ? shift : 0;
    const int32_t right = shift > 0 ? 0 : -shift;
    const int64_t product = (int64_t)(int32_t)((uint32_t)value << left) * multiplier;
    const int32_t high = (int32_t)((product + ((int64_t)1 << 30)) >> 31);
    const int32_t mask = (int32_t)(((uint32_t)1 << right) - 1u);
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0 ? 1 : 0) ? 1 : 0);
}

int8_t stand_in_clipped(int32_t value, cmsis_nn_activation range)
{
    return (int8_t)(value < range.min ? range.min : value > range.max ? range.max : value);
}
