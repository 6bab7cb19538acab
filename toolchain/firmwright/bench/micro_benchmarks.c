/* SPDX-License-Identifier: Apache-2.0 */
/* micro_benchmarks.c: programs that each depend on one property of core and memory, for calibrate.
 *
 * `x` are 1,024 words in RAM. Barriers keep compilers from removing or merging the operations.
 */
#include <stdint.h>

#define WORDS 1024
#define KEEP(value) __asm__ volatile("" : "+r"(value))

void bench_additions(const int32_t *x, int32_t *y);
void bench_loads(const int32_t *x, int32_t *y);
void bench_dependent_loads(const int32_t *x, int32_t *y);
void bench_stores(const int32_t *x, int32_t *y);
void bench_multiply_adds(const int32_t *x, int32_t *y);
void bench_byte_multiply_adds(const int32_t *x, int32_t *y);
void bench_loops(const int32_t *x, int32_t *y);
void bench_branches(const int32_t *x, int32_t *y);
void bench_calls(const int32_t *x, int32_t *y);
void bench_divisions(const int32_t *x, int32_t *y);
void bench_floats(const int32_t *x, int32_t *y);
void bench_flash_words(const int32_t *x, int32_t *y);
void bench_flash_bytes(const int32_t *x, int32_t *y);
void bench_flash_code(const int32_t *x, int32_t *y);

static const int32_t flash_words[2 * WORDS] = { 1 };
static const int8_t flash_bytes[4 * WORDS] = { 1 };

void bench_additions(const int32_t *x, int32_t *y)
{
    uint32_t sum = (uint32_t)x[0];
    for (int32_t i = 0; i < WORDS; ++i) {
        sum += sum >> 1;
        KEEP(sum);
        sum ^= 5u;
        KEEP(sum);
    }
    y[0] = (int32_t)sum;
}

void bench_loads(const int32_t *x, int32_t *y)
{
    uint32_t sum = 0;
    for (int32_t i = 0; i < WORDS; i += 4) {
        const uint32_t a = (uint32_t)x[i], b = (uint32_t)x[i + 1];
        const uint32_t c = (uint32_t)x[i + 2], d = (uint32_t)x[i + 3];
        sum += (a ^ b) + (c ^ d);
        KEEP(sum);
    }
    y[0] = (int32_t)sum;
}

/* Each address is computed from the word that was loaded before. */
void bench_dependent_loads(const int32_t *x, int32_t *y)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < WORDS; ++i) {
        at = ((uint32_t)x[at] + i) % WORDS;
    }
    y[0] = (int32_t)at;
}

void bench_stores(const int32_t *x, int32_t *y)
{
    const int32_t value = x[0];
    volatile int32_t *const to = y;
    for (int32_t i = 0; i < WORDS; ++i) {
        to[0] = value;
        to[1] = value;
    }
}

void bench_multiply_adds(const int32_t *x, int32_t *y)
{
    uint32_t sum = 0;
    for (int32_t i = 0; i < WORDS; ++i) {
        sum += (uint32_t)x[i] * (uint32_t)x[WORDS - 1 - i];
        KEEP(sum);
    }
    y[0] = (int32_t)sum;
}

void bench_byte_multiply_adds(const int32_t *x, int32_t *y)
{
    const int8_t *const bytes = (const int8_t *)x;
    int32_t sum = 0;
    for (int32_t i = 0; i < 2 * WORDS; ++i) {
        sum += bytes[i] * bytes[2 * WORDS + i];
        KEEP(sum);
    }
    y[0] = sum;
}

void bench_loops(const int32_t *x, int32_t *y)
{
    int32_t left = 2 * WORDS;
    do {
        --left;
        KEEP(left);
    } while (left != 0);
    y[0] = x[0];
}

/* A generator of pseudo-random numbers decides, so that a branch predictor often errs. */
void bench_branches(const int32_t *x, int32_t *y)
{
    uint32_t random = (uint32_t)x[0] | 1u, taken = 0;
    for (int32_t i = 0; i < WORDS; ++i) {
        random = random * 1664525u + 1013904223u;
        if ((random & 0x80000000u) != 0) {
            ++taken;
            KEEP(taken);
        }
    }
    y[0] = (int32_t)taken;
}

static __attribute__((noinline)) uint32_t twice(uint32_t value)
{
    KEEP(value);
    return 2u * value;
}

void bench_calls(const int32_t *x, int32_t *y)
{
    uint32_t value = (uint32_t)x[0];
    for (int32_t i = 0; i < WORDS; ++i) {
        value = twice(value);
    }
    y[0] = (int32_t)value;
}

void bench_divisions(const int32_t *x, int32_t *y)
{
    uint32_t sum = 0;
    for (uint32_t i = 1; i < WORDS; ++i) {
        uint32_t value = 0x7FFFFFFFu - (uint32_t)x[i];
        KEEP(value);
        sum += value / (i * i);
    }
    y[0] = (int32_t)sum;
}

void bench_floats(const int32_t *x, int32_t *y)
{
    float sum = (float)x[0];
    for (int32_t i = 0; i < WORDS / 4; ++i) {
        sum = sum * 0.5f + (float)i;
    }
    y[0] = (int32_t)sum;
}

/* Constants, in flash, without a loop's repetition: each is read once. */
void bench_flash_words(const int32_t *x, int32_t *y)
{
    const int32_t *from = flash_words;
    KEEP(from);
    uint32_t sum = (uint32_t)x[0];
    for (int32_t i = 0; i < 2 * WORDS; ++i) {
        sum += (uint32_t)from[i];
        KEEP(sum);
    }
    y[0] = (int32_t)sum;
}

void bench_flash_bytes(const int32_t *x, int32_t *y)
{
    const int8_t *from = flash_bytes;
    const int8_t *const bytes = (const int8_t *)x;
    KEEP(from);
    int32_t sum = 0;
    for (int32_t i = 0; i < 4 * WORDS; ++i) {
        sum += bytes[i] * from[i];
        KEEP(sum);
    }
    y[0] = sum;
}

#define STEP            \
    sum += (sum >> 3);  \
    KEEP(sum);          \
    sum ^= 0x01010101u; \
    KEEP(sum);
#define STEPS_8 STEP STEP STEP STEP STEP STEP STEP STEP
#define STEPS_64 STEPS_8 STEPS_8 STEPS_8 STEPS_8 STEPS_8 STEPS_8 STEPS_8 STEPS_8
#define STEPS_512 STEPS_64 STEPS_64 STEPS_64 STEPS_64 STEPS_64 STEPS_64 STEPS_64 STEPS_64

/* Straight code, about as large as the largest unrolled kernels: 2 to 4 KiB. */
void bench_flash_code(const int32_t *x, int32_t *y)
{
    uint32_t sum = (uint32_t)x[0];
    for (int32_t i = 0; i < 8; ++i) {
        STEPS_512
    }
    y[0] = (int32_t)sum;
}
