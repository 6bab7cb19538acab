/* Runs a model once on its input, and writes to the file output.bin of the host: the output, and
 * the instructions of the run, if the core counts them.
 *
 * MODEL_NAME is the model's name in C, MODEL_MACRO that of its macros. There is no C library, and
 * Debian's libgcc for the LX106 lacks 64-bit products and quotients. */
#include MODEL_HEADER

#include <stddef.h>

#if defined(USES_HTIF)
#include "spike_start.h"
#elif defined(USES_LX6)
#include "lx6_start.h"
#else
#include "lx106_start.h"
#endif

#define JOIN(a, b) a##b
#define NAME(a, b) JOIN(a, b)
#define MODEL(word) NAME(MODEL_NAME, word)
#define CONSTANT(word) NAME(MODEL_MACRO, word)

__asm__(".section .rodata\n\t.balign 16\ninput:\n\t.incbin \"input.bin\"\n\t.previous");
extern const uint8_t input[];
static struct {
    uint32_t instructions;
    uint8_t output[OUTPUT_BYTES];
} result;
static uint8_t sram[CONSTANT(_SRAM_SIZE)] __attribute__((aligned(16)));

void *memcpy(void *to, const void *from, size_t size);
void *memset(void *to, int value, size_t size);
void fault(void);
void run_all(void);

void *memcpy(void *to, const void *from, size_t size)
{
    for (size_t i = 0; i < size; ++i) {
        ((uint8_t *)to)[i] = ((const uint8_t *)from)[i];
    }
    return to;
}

void *memset(void *to, int value, size_t size)
{
    for (size_t i = 0; i < size; ++i) {
        ((uint8_t *)to)[i] = (uint8_t)value;
    }
    return to;
}

#if defined(__XTENSA__)

uint64_t __umulsidi3(uint32_t a, uint32_t b);
int64_t __muldi3(int64_t a, int64_t b);
int32_t __divsi3(int32_t a, int32_t b);

uint64_t __umulsidi3(uint32_t a, uint32_t b)
{
    const uint32_t a_low = a & 0xFFFFu, a_high = a >> 16;
    const uint32_t b_low = b & 0xFFFFu, b_high = b >> 16;
    const uint32_t middle = a_high * b_low + (a_low * b_low >> 16);
    const uint32_t cross = a_low * b_high + (middle & 0xFFFFu);
    const uint32_t high = a_high * b_high + (middle >> 16) + (cross >> 16);
    return (uint64_t)high << 32 | a * b;
}

int64_t __muldi3(int64_t a, int64_t b)
{
    const uint64_t low = __umulsidi3((uint32_t)a, (uint32_t)b);
    const uint32_t high = (uint32_t)(a >> 32) * (uint32_t)b + (uint32_t)a * (uint32_t)(b >> 32);
    return (int64_t)(low + ((uint64_t)high << 32));
}

int32_t __divsi3(int32_t a, int32_t b)
{
    const uint32_t divisor = b < 0 ? 0u - (uint32_t)b : (uint32_t)b;
    uint32_t rest = a < 0 ? 0u - (uint32_t)a : (uint32_t)a;
    uint32_t quotient = 0;
    for (int shift = __builtin_clz(divisor | 1u); shift >= 0; --shift) {
        if (rest >= divisor << shift) {
            rest -= divisor << shift;
            quotient |= 1u << shift;
        }
    }
    return (int32_t)((a < 0) != (b < 0) ? 0u - quotient : quotient);
}

#endif

void fault(void)
{
    leave(3);
}

void run_all(void)
{
    const struct MODEL(_workspace_pools) pools = {.sram = sram};
    struct MODEL(_inputs) in;
    struct MODEL(_outputs) out;
    if (MODEL(_map_io)(&pools, &in, &out) != CONSTANT(_OK)) {
        leave(1);
    }
    (void)memcpy(*(int8_t **)&in, input, INPUT_BYTES);
    const uint32_t before = executed_instructions();
    if (MODEL(_run)(&in, &out, &pools) != CONSTANT(_OK)) {
        leave(2);
    }
    result.instructions = executed_instructions() - before;
    (void)memcpy(result.output, *(const void **)&out, OUTPUT_BYTES);
    write_output(&result, sizeof result);
    leave(0);
}
