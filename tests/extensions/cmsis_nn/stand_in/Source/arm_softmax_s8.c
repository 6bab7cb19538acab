/* Softmax in fixed point, as TFLite defines it for int8. */
#include "arm_nnfunctions.h"

static int32_t high(int32_t a, int32_t b)
{
    const int64_t product = (int64_t)a * b;
    const int64_t nudge = product >= 0 ? (int64_t)1 << 30 : 1 - ((int64_t)1 << 30);
    return (int32_t)((product + nudge) / ((int64_t)1 << 31));
}

static int32_t halved(int32_t value, int32_t times)
{
    const int32_t mask = (int32_t)(((uint32_t)1 << times) - 1u);
    return (value >> times) + ((value & mask) > (mask >> 1) + (value < 0 ? 1 : 0) ? 1 : 0);
}

static int32_t exponential(int32_t a)
{
    static const int32_t factors[7] = {1672461947, 1302514674, 790015084, 290630308,
                                       39332535,   720401,     242};
    if (a == 0) {
        return INT32_MAX;
    }
    const int32_t part = (a & ((1 << 24) - 1)) - (1 << 24);
    const int32_t x = part * 32 + (1 << 28), x2 = high(x, x), x3 = high(x2, x);
    const int32_t quarter = halved(high(x2, x2), 2);
    const int32_t series = halved(high(quarter + x3, 715827883) + x2, 1);
    int32_t result = 1895147668 + high(1895147668, x + series);
    for (int32_t i = 0; i < 7; ++i) {
        if ((part - a) & (1 << (24 + i))) {
            result = high(result, factors[i]);
        }
    }
    return result;
}

static int32_t reciprocal(int32_t total, int32_t headroom)
{
    const int32_t half = (int32_t)(((uint32_t)total << headroom) >> 1);
    int32_t x = 1515870810 + high(half, -1010580540);
    for (int32_t step = 0; step < 3; ++step) {
        x += high(x, (1 << 29) - high(half, x)) * 4;
    }
    return x >= (1 << 30) ? INT32_MAX : x * 2;
}

void arm_softmax_s8(const int8_t *x, const int32_t rows, const int32_t depth,
                    const int32_t multiplier, const int32_t shift, const int32_t least, int8_t *y)
{
    const cmsis_nn_activation range = {-128, 127};
    for (int32_t row = 0; row < rows; ++row, x += depth, y += depth) {
        int32_t greatest = -128, total = 0, headroom = 0;
        for (int32_t i = 0; i < depth; ++i) {
            greatest = x[i] > greatest ? x[i] : greatest;
        }
        for (int32_t i = 0; i < depth; ++i) {
            if (x[i] - greatest >= least) {
                const int32_t scaled = stand_in_requantized(x[i] - greatest, multiplier, shift);
                total += halved(exponential(scaled), 12);
            }
        }
        while (((uint32_t)total << headroom & 0x80000000u) == 0) {
            headroom += 1;
        }
        const int32_t factor = reciprocal(total, headroom);
        for (int32_t i = 0; i < depth; ++i) {
            y[i] = -128;
            if (x[i] - greatest >= least) {
                const int32_t scaled = stand_in_requantized(x[i] - greatest, multiplier, shift);
                const int32_t power = high(factor, exponential(scaled));
                y[i] = stand_in_clipped(halved(power, 35 - headroom) - 128, range);
            }
        }
    }
}
