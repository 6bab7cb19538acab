/* SPDX-License-Identifier: Apache-2.0 */
/* gcc_numbers.h: sums and products of floats in gcc_floats.c, and of doubles in gcc_doubles.c.
 *
 * The file that includes this one defines `number`, the type of a number's bits, and how they are
 * divided: NUMBER_BITS, FRACTION_BITS and BIAS.
 *
 * IEEE 754, rounding to the nearest and of two to the even; subnormal numbers are exact, and a NaN
 * of an operand is kept. A significand that is not rounded yet has its leading bit at the second
 * bit from the top, so that EXTRA_BITS are lost.
 */
#ifndef FWR_GCC_NUMBERS_H
#define FWR_GCC_NUMBERS_H

#include "gcc_functions.h"

#define EXTRA_BITS (NUMBER_BITS - 2 - FRACTION_BITS)
#define SIGN ((number)1 << (NUMBER_BITS - 1))
#define LEADING ((number)1 << FRACTION_BITS)
#define FRACTION (LEADING - 1u)
#define EXPONENT_INFINITE (2 * BIAS + 1)
#define INFINITE ((number)EXPONENT_INFINITE << FRACTION_BITS)
#define QUIET (LEADING >> 1)
#define NOT_A_NUMBER (INFINITE | QUIET)

/* A finite number other than zero: its leading bit is LEADING. */
struct parts {
    int32_t exponent;
    number significand;
};

static int32_t leading_zeros(number value);

/* The upper half of a product of two significands; its lowest bit is set if the lower half is not
 * zero. */
static number high_product(number a, number b);

/* Shifts right; the lowest bit of the result is set if any bit was lost. */
static number shift_right(number value, uint32_t bits)
{
    if (bits == 0) {
        return value;
    }
    if (bits > NUMBER_BITS - 1) {
        return value != 0;
    }
    return value >> bits | (value << (NUMBER_BITS - bits) != 0);
}

static number rounded(number sign, int32_t exponent, number significand)
{
    const uint32_t half = 1u << (EXTRA_BITS - 1);
    uint32_t lost;

    if (exponent >= EXPONENT_INFINITE) {
        return sign | INFINITE;
    }
    if (exponent < 1) {
        significand = shift_right(significand, (uint32_t)(1 - exponent));
        exponent = 1;
    }
    lost = (uint32_t)significand & (2u * half - 1u);
    significand = (significand + half) >> EXTRA_BITS;
    if (lost == half) {
        significand &= ~(number)1;
    }
    /* The leading bit, or a carry of the rounding, adds one to the exponent. */
    return (sign | (number)(exponent - 1) << FRACTION_BITS) + significand;
}

/* Rounds a significand whose leading bit is the second or third one from the top. */
static number scaled(number sign, int32_t exponent, number significand)
{
    if (significand < SIGN >> 1) {
        significand <<= 1;
        exponent--;
    }
    return rounded(sign, exponent, significand);
}

static struct parts parts_of(number magnitude)
{
    struct parts parts;

    parts.exponent = (int32_t)(magnitude >> FRACTION_BITS);
    parts.significand = magnitude & FRACTION;
    if (parts.exponent != 0) {
        parts.significand |= LEADING;
    } else {
        int32_t missing = leading_zeros(parts.significand) - (EXTRA_BITS + 1);

        parts.significand <<= missing;
        parts.exponent = 1 - missing;
    }
    return parts;
}

/* The sum if an operand is zero, infinite or no number; x is not smaller than y. */
static number special_sum(number x, number y)
{
    number x_size = x & ~SIGN;
    number y_size = y & ~SIGN;

    if (x_size > INFINITE) {
        return x | QUIET;
    }
    if (x_size == INFINITE) {
        return y_size == INFINITE && x != y ? NOT_A_NUMBER : x;
    }
    return x_size != 0 ? x : x & y;
}

static number sum_of(number a, number b)
{
    uint32_t is_ordered = (a & ~SIGN) >= (b & ~SIGN);
    number x = is_ordered ? a : b;
    number y = is_ordered ? b : a;
    struct parts of_x;
    struct parts of_y;
    number sum;
    int32_t left;

    if ((x & ~SIGN) >= INFINITE || (y & ~SIGN) == 0) {
        return special_sum(x, y);
    }
    of_x = parts_of(x & ~SIGN);
    of_y = parts_of(y & ~SIGN);
    sum = of_x.significand << (EXTRA_BITS - 1);
    of_y.significand = shift_right(of_y.significand << (EXTRA_BITS - 1),
                                   (uint32_t)(of_x.exponent - of_y.exponent));
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

static number product_of(number a, number b)
{
    number sign = (a ^ b) & SIGN;
    number x = a & ~SIGN;
    number y = b & ~SIGN;
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
    return scaled(
        sign, of_x.exponent + of_y.exponent - BIAS + 1,
        high_product(of_x.significand << (EXTRA_BITS + 1), of_y.significand << EXTRA_BITS));
}

#endif
