/* SPDX-License-Identifier: Apache-2.0 */
/* gcc_doubles.c: functions that gcc calls for doubles, of which Debian's libgcc for the LX106 lacks
 * these (gcc-xtensa-lx106 12.2). gcc_numbers.h says how they round.
 */
#include <stdint.h>

#define NUMBER_BITS 64
#define FRACTION_BITS 52
#define BIAS 1023

typedef uint64_t number;

#include "gcc_numbers.h"

#define HIGH_SIGN 0x80000000u

static int32_t leading_zeros(uint64_t value)
{
    uint32_t high = (uint32_t)(value >> 32);

    return high != 0 ? __builtin_clz(high) : 32 + __builtin_clz((uint32_t)value);
}

static uint64_t high_product(uint64_t a, uint64_t b)
{
    uint64_t low = __umulsidi3((uint32_t)a, (uint32_t)b);
    uint64_t middle = __umulsidi3((uint32_t)(a >> 32), (uint32_t)b) + (low >> 32);
    uint64_t cross = __umulsidi3((uint32_t)a, (uint32_t)(b >> 32)) + (uint32_t)middle;
    uint64_t high = __umulsidi3((uint32_t)(a >> 32), (uint32_t)(b >> 32));

    high += (middle >> 32) + (cross >> 32);
    return high | (((uint32_t)low | (uint32_t)cross) != 0);
}

uint64_t __adddf3(uint64_t a, uint64_t b)
{
    return sum_of(a, b);
}

uint64_t __subdf3(uint64_t a, uint64_t b)
{
    return __adddf3(a, b ^ SIGN);
}

uint64_t __muldf3(uint64_t a, uint64_t b)
{
    return product_of(a, b);
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
