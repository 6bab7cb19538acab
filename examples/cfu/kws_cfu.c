/* SPDX-License-Identifier: Apache-2.0 */
/* kws_cfu.c: sums, the doubling high product, and the rounding shift are computed by the CFU. */
#include "kws_cfu.h"

#include <string.h>

#define CLEAR 0 /* values of funct3 */
#define MAC 1
#define DOUBLE_HIGH 2
#define SHIFT_AND_CLAMP 4
#define FOUR_LANES 1 /* bits of funct7 for MAC */
#define RAW_INPUT 2

#if KWS_CFU_SIMULATED
uint32_t cfu_execute(uint32_t function, uint32_t a, uint32_t b);
#define CFU(funct7, funct3, a, b) \
    (int32_t)cfu_execute((funct7) << 3 | (funct3), (uint32_t)(a), (uint32_t)(b))
#else
#define CFU(funct7, funct3, a, b) \
    __extension__({ \
        int32_t result_; \
        __asm__ volatile(".insn r 0x0b, %c1, %c2, %0, %3, %4" \
                         : "=r"(result_) \
                         : "i"(funct3), "i"(funct7), "r"(a), "r"(b)); \
        result_; \
    })
#endif

static int32_t word(const int8_t *bytes)
{
    int32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

/* Adds the products of `count` neighbors; returns the sum so far. */
static int32_t add_products(const int8_t *x, const int8_t *w, int32_t count, int32_t x_is_raw)
{
    int32_t sum = 0, at = 0;
    for (; at + 4 <= count; at += 4) {
        sum = x_is_raw ? CFU(FOUR_LANES | RAW_INPUT, MAC, word(&x[at]), word(&w[at]))
                       : CFU(FOUR_LANES, MAC, word(&x[at]), word(&w[at]));
    }
    for (; at < count; ++at) {
        sum = x_is_raw ? CFU(RAW_INPUT, MAC, x[at], w[at]) : CFU(0, MAC, x[at], w[at]);
    }
    return sum;
}

/* The result of SHIFT_AND_CLAMP is that of the value before it, in the CFU's register. */
static int8_t requantize(int32_t sum, int32_t multiplier, int32_t shift)
{
    const int64_t product = (int64_t)sum * multiplier;
    (void)CFU(0, DOUBLE_HIGH, (int32_t)(product >> 32), (int32_t)(uint32_t)product);
    return (int8_t)CFU(0, SHIFT_AND_CLAMP, 0, shift);
}

void kws_cfu_conv(const int8_t *x, const int8_t *filters, const int32_t *bias,
                  const int32_t *multipliers, const int32_t *shifts, int8_t *y, int32_t x_rows,
                  int32_t x_columns, int32_t x_channels, int32_t y_rows, int32_t y_columns,
                  int32_t y_channels, int32_t rows, int32_t columns, int32_t depth,
                  int32_t channel_step, int32_t step_down, int32_t step_right, int32_t top,
                  int32_t left, int32_t x_is_raw)
{
    for (int32_t place = 0; place < y_rows * y_columns; ++place) {
        const int32_t first_row = place / y_columns * step_down - top;
        const int32_t first_column = place % y_columns * step_right - left;
        for (int32_t o = 0; o < y_channels; ++o) {
            int32_t sum = CFU(0, CLEAR, 0, 0);
            for (int32_t tap = 0; tap < rows * columns; ++tap) {
                const int32_t r = first_row + tap / columns, c = first_column + tap % columns;
                if (r >= 0 && r < x_rows && c >= 0 && c < x_columns) {
                    const int32_t at = (r * x_columns + c) * x_channels + o * channel_step;
                    sum = add_products(&x[at], &filters[(o * rows * columns + tap) * depth], depth,
                                       x_is_raw);
                }
            }
            y[place * y_channels + o] = requantize(sum + bias[o], multipliers[o], shifts[o]);
        }
    }
}
