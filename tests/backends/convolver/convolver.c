/* convolver.c: an int8 convolution with rounding like gemmlowp's, in which tests plant defects. */
#include <stdint.h>

struct job {
    const int8_t *x;
    const int8_t *w;
    const int32_t *bias;
    const int32_t *multipliers;
    const int32_t *shifts;
    int8_t *y;
    int32_t n, in_h, in_w, in_c, out_h, out_w, out_c, k_h, k_w;
    int32_t stride_h, stride_w, top, left, x_zero, y_zero, low, high;
};

static int32_t scaled(int32_t sum, int32_t multiplier, int32_t shift)
{
    const int32_t left = shift > 0 ? shift : 0;
    const int32_t right = shift > 0 ? 0 : -shift;
    const int64_t product = (int64_t)(int32_t)((uint32_t)sum << left) * multiplier;
    const int64_t nudge = product >= 0 ? (int64_t)1 << 30 : 1 - ((int64_t)1 << 30);
    const int32_t high = (int32_t)((product + nudge) / ((int64_t)1 << 31));
    const int32_t mask = (int32_t)(((uint32_t)1 << right) - 1u);
    const int32_t threshold = (mask >> 1) + (high < 0 ? 1 : 0);
    return (high >> right) + ((high & mask) > threshold ? 1 : 0);
}

static int32_t sum_of(const struct job *j, int32_t n, int32_t oy, int32_t ox, int32_t o)
{
    int32_t sum = j->bias[o];
    for (int32_t ky = 0; ky < j->k_h; ++ky) {
        for (int32_t kx = 0; kx < j->k_w; ++kx) {
            const int32_t iy = oy * j->stride_h + ky - j->top;
            const int32_t ix = ox * j->stride_w + kx - j->left;
            if (iy < 0 || iy >= j->in_h || ix < 0 || ix >= j->in_w) {
                continue;
            }
            const int8_t *x = j->x + ((n * j->in_h + iy) * j->in_w + ix) * j->in_c;
            const int8_t *w = j->w + ((o * j->k_h + ky) * j->k_w + kx) * j->in_c;
            for (int32_t c = 0; c < j->in_c; ++c) {
                sum += (x[c] - j->x_zero) * w[c];
            }
        }
    }
    return sum;
}

static void compute(const struct job *j)
{
    const int32_t pixels = j->out_h * j->out_w;
    const int32_t count = j->n * pixels * j->out_c;
    for (int32_t i = 0; i < count; ++i) {
        const int32_t o = i % j->out_c;
        const int32_t pixel = i / j->out_c;
        const int32_t oy = pixel % pixels / j->out_w;
        const int32_t ox = pixel % pixels % j->out_w;
        const int32_t sum = sum_of(j, pixel / pixels, oy, ox, o);
        int32_t value = scaled(sum, j->multipliers[o], j->shifts[o]) + j->y_zero;
        value = value < j->low ? j->low : value > j->high ? j->high : value;
        j->y[i] = (int8_t)value;
    }
}

void convolver_run(const int8_t *x, const int8_t *w, const int32_t *bias,
                   const int32_t *multipliers, const int32_t *shifts, int8_t *y, int32_t n,
                   int32_t in_h, int32_t in_w, int32_t in_c, int32_t out_h, int32_t out_w,
                   int32_t out_c, int32_t k_h, int32_t k_w, int32_t stride_h, int32_t stride_w,
                   int32_t top, int32_t left, int32_t x_zero, int32_t y_zero, int32_t low,
                   int32_t high)
{
    const struct job job = {x,        w,    bias,  multipliers, shifts, y,   n,   in_h,
                            in_w,     in_c, out_h, out_w,       out_c,  k_h, k_w, stride_h,
                            stride_w, top,  left,  x_zero,      y_zero, low, high};

    compute(&job);
}
