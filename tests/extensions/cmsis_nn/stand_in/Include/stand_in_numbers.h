/* value * multiplier * 2^(shift - 31), rounded twice, or once by 16 bits; cutting to a range. */
#ifndef STAND_IN_NUMBERS_H
#define STAND_IN_NUMBERS_H

static inline int32_t stand_in_requantized(int32_t value, int32_t multiplier, int32_t shift)
{
    const int32_t left = shift > 0 ? shift : 0;
    const int32_t right = shift > 0 ? 0 : -shift;
    const int64_t product = (int64_t)(int32_t)((uint32_t)value << left) * multiplier;
    const int32_t high = (int32_t)((product + ((int64_t)1 << 30)) >> 31);
    const int32_t mask = (int32_t)(((uint32_t)1 << right) - 1u);
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0 ? 1 : 0) ? 1 : 0);
}

static inline int32_t stand_in_requantized_wide(int64_t value, int32_t multiplier, int32_t shift)
{
    const int32_t half = (multiplier >> 15) + 1;
    const int32_t reduced = half >> 1 > INT16_MAX ? INT16_MAX : half >> 1;
    return (int32_t)((value * reduced + ((int64_t)1 << (14 - shift))) >> (15 - shift));
}

static inline int32_t stand_in_clipped(int32_t value, cmsis_nn_activation range)
{
    return value < range.min ? range.min : value > range.max ? range.max : value;
}

#endif
