/* SPDX-License-Identifier: Apache-2.0 */
/* gcc_floats.c: functions that gcc calls for floats, of which Debian's libgcc for the LX106 lacks
 * these (gcc-xtensa-lx106 12.2).
 *
 * IEEE 754, rounding to the nearest and of two to the even; subnormal numbers are exact, and a NaN
 * of an operand is kept. A significand that is not rounded yet has its leading bit at bit 30.
 */
#include "gcc_functions.h"

#define SIGN 0x80000000u
#define INFINITE 0x7F800000u
#define QUIET 0x00400000u
#define NOT_A_NUMBER 0x7FC00000u
#define FRACTION 0x007FFFFFu
#define LEADING 0x00800000u
#define BIAS 127

/* A finite number other than zero: its leading bit is bit 23. */
struct parts {
    int32_t exponent;
    uint32_t significand;
};

/* Shifts right; the lowest bit of the result is set if any bit was lost. */
static uint32_t shift_right(uint32_t value, uint32_t bits)
{
    if (bits == 0) {
        return value;
    }
    if (bits > 31) {
        return value != 0;
    }
    return value >> bits | (value << (32u - bits) != 0);
}

static uint32_t rounded(uint32_t sign, int32_t exponent, uint32_t significand)
{
    uint32_t lost;

    if (exponent > 254) {
        return sign | INFINITE;
    }
    if (exponent < 1) {
        significand = shift_right(significand, (uint32_t)(1 - exponent));
        exponent = 1;
    }
    lost = significand & 0x7Fu;
    significand = (significand + 0x40u) >> 7;
    if (lost == 0x40u) {
        significand &= ~1u;
    }
    /* The leading bit, or a carry of the rounding, adds one to the exponent. */
    return (sign | (uint32_t)(exponent - 1) << 23) + significand;
}

static struct parts parts_of(uint32_t magnitude)
{
    struct parts parts;

    parts.exponent = (int32_t)(magnitude >> 23);
    parts.significand = magnitude & FRACTION;
    if (parts.exponent != 0) {
        parts.significand |= LEADING;
    } else {
        int32_t missing = __builtin_clz(parts.significand) - 8;

        parts.significand <<= missing;
        parts.exponent = 1 - missing;
    }
    return parts;
}

/* The sum if an operand is zero, infinite or no number; x is not smaller than y. */
static uint32_t special_sum(uint32_t x, uint32_t y)
{
    uint32_t x_size = x & ~SIGN;
    uint32_t y_size = y & ~SIGN;

    if (x_size > INFINITE) {
        return x | QUIET;
    }
    if (x_size == INFINITE) {
        return y_size == INFINITE && x != y ? NOT_A_NUMBER : x;
    }
    return x_size != 0 ? x : x & y;
}

uint32_t __addsf3(uint32_t a, uint32_t b)
{
    uint32_t is_ordered = (a & ~SIGN) >= (b & ~SIGN);
    uint32_t x = is_ordered ? a : b;
    uint32_t y = is_ordered ? b : a;
    struct parts of_x;
    struct parts of_y;
    uint32_t sum;
    int32_t left;

    if ((x & ~SIGN) >= INFINITE || (y & ~SIGN) == 0) {
        return special_sum(x, y);
    }
    of_x = parts_of(x & ~SIGN);
    of_y = parts_of(y & ~SIGN);
    sum = of_x.significand << 6;
    of_y.significand = shift_right(of_y.significand << 6, (uint32_t)(of_x.exponent - of_y.exponent));
    if (((x ^ y) & SIGN) == 0) {
        sum += of_y.significand;
    } else {
        sum -= of_y.significand;
    }
    if (sum == 0) {
        return 0;
    }
    left = __builtin_clz(sum) - 1;
    return rounded(x & SIGN, of_x.exponent + 1 - left, sum << left);
}

uint32_t __subsf3(uint32_t a, uint32_t b)
{
    return __addsf3(a, b ^ SIGN);
}

uint32_t __mulsf3(uint32_t a, uint32_t b)
{
    uint32_t sign = (a ^ b) & SIGN;
    uint32_t x = a & ~SIGN;
    uint32_t y = b & ~SIGN;
    struct parts of_x;
    struct parts of_y;
    uint64_t product;
    uint32_t significand;
    int32_t exponent;

    if (x >= INFINITE || y >= INFINITE) {
        if (x > INFINITE) {
            return a | QUIET;
        }
        if (y > INFINITE) {
            return b | QUIET;
        }
        return x == 0 || y == 0 ? NOT_A_NUMBER : sign | INFINITE;
    }
    if (x == 0 || y == 0) {
        return sign;
    }
    of_x = parts_of(x);
    of_y = parts_of(y);
    product = __umulsidi3(of_x.significand << 8, of_y.significand << 7);
    significand = (uint32_t)(product >> 32) | ((uint32_t)product != 0);
    exponent = of_x.exponent + of_y.exponent - BIAS + 1;
    if (significand < 1u << 30) {
        significand <<= 1;
        exponent--;
    }
    return rounded(sign, exponent, significand);
}

uint32_t __floatunsisf(uint32_t a)
{
    uint32_t left;

    if (a == 0) {
        return 0;
    }
    left = (uint32_t)__builtin_clz(a);
    return rounded(0, BIAS + 31 - (int32_t)left, shift_right(a << left, 1));
}

uint32_t __floatsisf(int32_t a)
{
    return a < 0 ? __floatunsisf(0u - (uint32_t)a) | SIGN : __floatunsisf((uint32_t)a);
}

/* Numbers out of range become the nearest one of the range. */
uint32_t __fixunssfsi(uint32_t a)
{
    uint32_t shift = BIAS + 31 - (a >> 23);

    if ((a & SIGN) != 0 || (a >> 23) < BIAS) {
        return 0;
    }
    if ((a >> 23) > BIAS + 31) {
        return UINT32_MAX;
    }
    return ((a & FRACTION) | LEADING) << 8 >> shift;
}

uint32_t __truncdfsf2(uint64_t a)
{
    uint32_t high = (uint32_t)(a >> 32);
    uint32_t low = (uint32_t)a;
    uint32_t exponent = high >> 20 & 0x7FFu;
    uint32_t significand = (high & 0xFFFFFu) << 10 | low >> 22 | (low << 10 != 0);

    if (exponent == 0x7FFu) {
        return significand != 0 ? NOT_A_NUMBER | (high & SIGN) : (high & SIGN) | INFINITE;
    }
    if (exponent == 0) {
        return high & SIGN;
    }
    return rounded(high & SIGN, (int32_t)exponent - 1023 + BIAS, significand | 1u << 30);
}
