/* SPDX-License-Identifier: Apache-2.0 */
/* gcc_doubles.c: functions that gcc calls for doubles, of which Debian's libgcc for the LX106 lacks
 * these (gcc-xtensa-lx106 12.2).
 *
 * As gcc_floats.c; a significand that is not rounded yet has its leading bit at bit 62.
 */
#include "gcc_functions.h"

#define SIGN 0x8000000000000000u
#define INFINITE 0x7FF0000000000000u
#define QUIET 0x0008000000000000u
#define NOT_A_NUMBER 0x7FF8000000000000u
#define FRACTION 0x000FFFFFFFFFFFFFu
#define LEADING 0x0010000000000000u
#define BIAS 1023
#define HIGH_SIGN 0x80000000u

/* A finite number other than zero: its leading bit is bit 52. */
struct parts {
    int32_t exponent;
    uint64_t significand;
};

/* Shifts right; the lowest bit of the result is set if any bit was lost. */
static uint64_t shift_right(uint64_t value, uint32_t bits)
{
    if (bits == 0) {
        return value;
    }
    if (bits > 63) {
        return value != 0;
    }
    return value >> bits | (value << (64u - bits) != 0);
}

static uint64_t rounded(uint64_t sign, int32_t exponent, uint64_t significand)
{
    uint32_t lost;

    if (exponent > 2046) {
        return sign | INFINITE;
    }
    if (exponent < 1) {
        significand = shift_right(significand, (uint32_t)(1 - exponent));
        exponent = 1;
    }
    lost = (uint32_t)significand & 0x3FFu;
    significand = (significand + 0x200u) >> 10;
    if (lost == 0x200u) {
        significand &= ~(uint64_t)1;
    }
    /* The leading bit, or a carry of the rounding, adds one to the exponent. */
    return (sign | (uint64_t)(exponent - 1) << 52) + significand;
}

static int32_t leading_zeros(uint64_t value)
{
    uint32_t high = (uint32_t)(value >> 32);

    return high != 0 ? __builtin_clz(high) : 32 + __builtin_clz((uint32_t)value);
}

static struct parts parts_of(uint64_t magnitude)
{
    struct parts parts;

    parts.exponent = (int32_t)(magnitude >> 52);
    parts.significand = magnitude & FRACTION;
    if (parts.exponent != 0) {
        parts.significand |= LEADING;
    } else {
        int32_t missing = leading_zeros(parts.significand) - 11;

        parts.significand <<= missing;
        parts.exponent = 1 - missing;
    }
    return parts;
}

/* The sum if an operand is zero, infinite or no number; x is not smaller than y. */
static uint64_t special_sum(uint64_t x, uint64_t y)
{
    uint64_t x_size = x & ~SIGN;
    uint64_t y_size = y & ~SIGN;

    if (x_size > INFINITE) {
        return x | QUIET;
    }
    if (x_size == INFINITE) {
        return y_size == INFINITE && x != y ? NOT_A_NUMBER : x;
    }
    return x_size != 0 ? x : x & y;
}

uint64_t __adddf3(uint64_t a, uint64_t b)
{
    uint32_t is_ordered = (a & ~SIGN) >= (b & ~SIGN);
    uint64_t x = is_ordered ? a : b;
    uint64_t y = is_ordered ? b : a;
    struct parts of_x;
    struct parts of_y;
    uint64_t sum;
    int32_t left;

    if ((x & ~SIGN) >= INFINITE || (y & ~SIGN) == 0) {
        return special_sum(x, y);
    }
    of_x = parts_of(x & ~SIGN);
    of_y = parts_of(y & ~SIGN);
    sum = of_x.significand << 9;
    of_y.significand = shift_right(of_y.significand << 9, (uint32_t)(of_x.exponent - of_y.exponent));
    if (((x ^ y) & SIGN) == 0) {
        sum += of_y.significand;
    } else {
        sum -= of_y.significand;
    }
    if (sum == 0) {
        return 0;
    }
    left = leading_zeros(sum) - 1;
    return rounded(x & SIGN, of_x.exponent + 1 - left, sum << left);
}

uint64_t __subdf3(uint64_t a, uint64_t b)
{
    return __adddf3(a, b ^ SIGN);
}

/* The upper half of a product of 128 bits; its lowest bit is set if the lower half is not zero. */
static uint64_t high_product(uint64_t a, uint64_t b)
{
    uint64_t low = __umulsidi3((uint32_t)a, (uint32_t)b);
    uint64_t middle = __umulsidi3((uint32_t)(a >> 32), (uint32_t)b) + (low >> 32);
    uint64_t cross = __umulsidi3((uint32_t)a, (uint32_t)(b >> 32)) + (uint32_t)middle;
    uint64_t high = __umulsidi3((uint32_t)(a >> 32), (uint32_t)(b >> 32));

    high += (middle >> 32) + (cross >> 32);
    return high | (((uint32_t)low | (uint32_t)cross) != 0);
}

/* The quotient of significands with a bit that is set if it is not exact; its leading bit is bit 62
 * or 61. */
static uint64_t significand_quotient(uint64_t a, uint64_t b)
{
    uint64_t quotient = 0;

    for (uint32_t bit = 0; bit < 63; bit++) {
        quotient <<= 1;
        if (a >= b) {
            a -= b;
            quotient |= 1u;
        }
        a <<= 1;
    }
    return quotient | (a != 0);
}

/* Rounds a significand whose leading bit is bit 62 or 61. */
static uint64_t scaled(uint64_t sign, int32_t exponent, uint64_t significand)
{
    if (significand < (uint64_t)1 << 62) {
        significand <<= 1;
        exponent--;
    }
    return rounded(sign, exponent, significand);
}

uint64_t __muldf3(uint64_t a, uint64_t b)
{
    uint64_t sign = (a ^ b) & SIGN;
    uint64_t x = a & ~SIGN;
    uint64_t y = b & ~SIGN;
    struct parts of_x;
    struct parts of_y;

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
    return scaled(sign, of_x.exponent + of_y.exponent - BIAS + 1,
                  high_product(of_x.significand << 11, of_y.significand << 10));
}

uint64_t __divdf3(uint64_t a, uint64_t b)
{
    uint64_t sign = (a ^ b) & SIGN;
    uint64_t x = a & ~SIGN;
    uint64_t y = b & ~SIGN;
    struct parts of_x;
    struct parts of_y;

    if (x > INFINITE) {
        return a | QUIET;
    }
    if (y > INFINITE) {
        return b | QUIET;
    }
    if (x == y && (x == 0 || x == INFINITE)) {
        return NOT_A_NUMBER;
    }
    if (x == INFINITE || y == 0) {
        return sign | INFINITE;
    }
    if (x == 0 || y == INFINITE) {
        return sign;
    }
    of_x = parts_of(x);
    of_y = parts_of(y);
    return scaled(sign, of_x.exponent - of_y.exponent + BIAS,
                  significand_quotient(of_x.significand, of_y.significand));
}

uint64_t __floatunsidf(uint32_t a)
{
    int32_t left;

    if (a == 0) {
        return 0;
    }
    left = __builtin_clz(a);
    return ((uint64_t)(BIAS + 30 - left) << 52) + ((uint64_t)a << (21 + left));
}

uint64_t __floatsidf(int32_t a)
{
    return a < 0 ? __floatunsidf(0u - (uint32_t)a) | SIGN : __floatunsidf((uint32_t)a);
}

/* Numbers out of range become the nearest one of the range. */
uint32_t __fixunsdfsi(uint64_t a)
{
    int32_t exponent = (int32_t)(a >> 52);

    if ((a & SIGN) != 0 || exponent < BIAS) {
        return 0;
    }
    if (exponent > BIAS + 31) {
        return UINT32_MAX;
    }
    return (uint32_t)((a << 11 | SIGN) >> 32) >> (BIAS + 31 - exponent);
}

int32_t __fixdfsi(uint64_t a)
{
    uint32_t is_negative = (a & SIGN) != 0;
    uint32_t size = __fixunsdfsi(a & ~SIGN);
    uint32_t most = (uint32_t)INT32_MAX + is_negative;

    if (size > most) {
        size = most;
    }
    return (int32_t)(is_negative ? 0u - size : size);
}

uint64_t __extendsfdf2(uint32_t a)
{
    uint64_t sign = (uint64_t)(a & HIGH_SIGN) << 32;
    uint32_t magnitude = a & ~HIGH_SIGN;
    int32_t exponent = (int32_t)(magnitude >> 23);
    uint64_t fraction = (uint64_t)(magnitude & 0x7FFFFFu) << 29;

    if (exponent == 255) {
        return sign | INFINITE | fraction | (fraction != 0 ? QUIET : 0);
    }
    if (exponent != 0) {
        return sign | (uint64_t)(exponent + BIAS - 127) << 52 | fraction;
    }
    if (fraction == 0) {
        return sign;
    }
    /* Subnormal as a float only: the leading bit adds one to the exponent. */
    {
        int32_t missing = leading_zeros(fraction) - 11;

        return sign | (((uint64_t)(BIAS - 127 - missing) << 52) + (fraction << missing));
    }
}
