/* SPDX-License-Identifier: Apache-2.0 */
/* gcc_floats.c: functions that gcc calls for floats, of which Debian's libgcc for the LX106 lacks
 * these (gcc-xtensa-lx106 12.2). gcc_numbers.h says how they round.
 */
#include <stdint.h>

#define NUMBER_BITS 32
#define FRACTION_BITS 23
#define BIAS 127

typedef uint32_t number;

#include "gcc_numbers.h"

static int32_t leading_zeros(uint32_t value)
{
    return __builtin_clz(value);
}

static uint32_t high_product(uint32_t a, uint32_t b)
{
    uint64_t product = __umulsidi3(a, b);

    return (uint32_t)(product >> 32) | ((uint32_t)product != 0);
}

uint32_t __addsf3(uint32_t a, uint32_t b)
{
    return sum_of(a, b);
}

uint32_t __subsf3(uint32_t a, uint32_t b)
{
    return __addsf3(a, b ^ SIGN);
}

uint32_t __mulsf3(uint32_t a, uint32_t b)
{
    return product_of(a, b);
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
