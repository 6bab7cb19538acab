/* SPDX-License-Identifier: Apache-2.0 */
/* gcc_integers.c: functions that gcc calls for integers that the core cannot multiply or divide.
 *
 * Debian's libgcc for the LX106 lacks them (gcc-xtensa-lx106 12.2). They are used even where a
 * libgcc has them, so that all toolchains give the same code.
 */
#include <stddef.h>
#include <stdint.h>

#include "gcc_functions.h"

uint64_t __umulsidi3(uint32_t a, uint32_t b)
{
    uint32_t a_low = a & 0xFFFFu;
    uint32_t a_high = a >> 16;
    uint32_t b_low = b & 0xFFFFu;
    uint32_t b_high = b >> 16;
    uint32_t middle = a_high * b_low + (a_low * b_low >> 16);
    uint32_t cross = a_low * b_high + (middle & 0xFFFFu);
    uint32_t high = a_high * b_high + (middle >> 16) + (cross >> 16);

    return (uint64_t)high << 32 | a * b;
}

uint64_t __muldi3(uint64_t a, uint64_t b)
{
    uint32_t cross = (uint32_t)(a >> 32) * (uint32_t)b + (uint32_t)a * (uint32_t)(b >> 32);

    return __umulsidi3((uint32_t)a, (uint32_t)b) + ((uint64_t)cross << 32);
}

/* A quotient by zero is zero here; C leaves it undefined. */
uint32_t __udivsi3(uint32_t a, uint32_t b)
{
    uint32_t quotient = 0;
    int32_t shift;

    if (b == 0 || a < b) {
        return 0;
    }
    shift = __builtin_clz(b) - __builtin_clz(a);
    b <<= shift;
    for (; shift >= 0; shift--) {
        quotient <<= 1;
        if (a >= b) {
            a -= b;
            quotient |= 1u;
        }
        b >>= 1;
    }
    return quotient;
}

uint32_t __umodsi3(uint32_t a, uint32_t b)
{
    return a - __udivsi3(a, b) * b;
}

int32_t __divsi3(int32_t a, int32_t b)
{
    uint32_t a_size = a < 0 ? 0u - (uint32_t)a : (uint32_t)a;
    uint32_t b_size = b < 0 ? 0u - (uint32_t)b : (uint32_t)b;
    uint32_t quotient = __udivsi3(a_size, b_size);

    return (int32_t)((a ^ b) < 0 ? 0u - quotient : quotient);
}

uint64_t __udivdi3(uint64_t a, uint64_t b)
{
    return __udivmoddi4(a, b, NULL);
}

uint64_t __umoddi3(uint64_t a, uint64_t b)
{
    uint64_t rest;

    (void)__udivmoddi4(a, b, &rest);
    return rest;
}

int64_t __divdi3(int64_t a, int64_t b)
{
    uint64_t a_size = a < 0 ? 0u - (uint64_t)a : (uint64_t)a;
    uint64_t b_size = b < 0 ? 0u - (uint64_t)b : (uint64_t)b;
    uint64_t quotient = __udivmoddi4(a_size, b_size, NULL);

    return (int64_t)((a ^ b) < 0 ? 0u - quotient : quotient);
}
