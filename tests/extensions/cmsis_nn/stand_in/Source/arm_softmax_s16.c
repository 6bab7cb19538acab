/* Softmax of int16 from tables of exponentials and reciprocals, as TFLite defines it. */
#include "arm_nnfunctions.h"

static int32_t read(const int16_t *table, int32_t value)
{
    const int32_t cut = value < INT16_MIN ? INT16_MIN : value > INT16_MAX ? INT16_MAX : value;
    const int32_t at = 256 + (cut >> 7), rest = cut & 127;
    return table[at] + (((table[at + 1] - table[at]) * rest + 64) >> 7);
}

arm_cmsis_nn_status arm_softmax_s16(const int16_t *x, const int32_t rows, const int32_t depth,
                                    const int32_t multiplier, const int32_t shift,
                                    const cmsis_nn_softmax_lut_s16 *tables, int16_t *y)
{
    for (int32_t row = 0; row < rows; ++row, x += depth, y += depth) {
        int32_t greatest = INT16_MIN, total = 0, headroom = 0;
        for (int32_t i = 0; i < depth; ++i) {
            greatest = x[i] > greatest ? x[i] : greatest;
        }
        for (int32_t i = 0; i < depth; ++i) {
            const int32_t scaled = stand_in_requantized(x[i] - greatest, multiplier, shift);
            y[i] = (int16_t)read(tables->exp_lut, scaled + INT16_MAX);
            total += y[i];
        }
        while (((uint32_t)total << headroom & 0x80000000u) == 0) {
            headroom += 1;
        }
        const int32_t mantissa = ((((total << (headroom - 1)) >> 13) + 1) >> 1) - 98304;
        const int32_t inverse = read(tables->one_by_one_lut, mantissa);
        for (int32_t i = 0; i < depth; ++i) {
            const int32_t right = 31 - headroom;
            const int32_t value = (y[i] * inverse + (1 << (right - 1))) >> right;
            y[i] = (int16_t)(value < 0 ? 0 : value > INT16_MAX ? INT16_MAX : value);
        }
    }
    return ARM_CMSIS_NN_SUCCESS;
}
