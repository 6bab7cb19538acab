/* harness.c: see harness.h. The kernels are static functions, so this file includes theirs. */
#include "harness.h"

#ifdef __clang__ /* Sums of which every bit is clamped away are computed, but not used. */
#pragma clang diagnostic ignored "-Wunused-but-set-variable"
#endif

#include "kernels.inc"
#include "table.h"

#if defined(__SANITIZE_ADDRESS__)
#define ON_HEAP 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ON_HEAP 1
#endif
#endif

#ifdef ON_HEAP
#include <stdlib.h>
#else
static uint8_t arena[CONFORM_ARENA_BYTES] __attribute__((aligned(32)));
#endif

#define PATTERN_SEED 77u

uint8_t conform_byte(uint32_t seed, uint32_t i)
{
    uint32_t h = i * 0x9e3779b1u + seed * 0x85ebca77u;
    h ^= h >> 15;
    h *= 0x2c1b3c6du;
    h ^= h >> 12;
    h *= 0x297a2d39u;
    return (uint8_t)(h >> 24);
}

uint32_t conform_crc(uint32_t crc, const uint8_t *bytes, uint32_t count)
{
    crc = ~crc;
    for (uint32_t i = 0; i < count; ++i) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; ++bit) {
            crc = (crc >> 1) ^ (0xedb88320u & (0u - (crc & 1u)));
        }
    }
    return ~crc;
}

static uint8_t pattern(uint32_t i, uint8_t flip)
{
    return (uint8_t)(conform_byte(PATTERN_SEED, i) ^ flip);
}

#ifdef ON_HEAP

static void place(const struct conform_kernel *kernel, uint8_t **at, uint8_t flip)
{
    for (uint32_t k = 0; k < kernel->count; ++k) {
        const uint32_t bytes = kernel->arguments[k].bytes;
        at[k] = malloc(bytes);
        for (uint32_t i = 0; i < bytes; ++i) {
            at[k][i] = pattern(i, flip);
        }
    }
}

static int32_t outside(const struct conform_kernel *kernel, uint8_t **at, uint8_t flip)
{
    (void)flip;
    for (uint32_t k = 0; k < kernel->count; ++k) {
        free(at[k]);
    }
    return 0;
}

#else

static void place(const struct conform_kernel *kernel, uint8_t **at, uint8_t flip)
{
    for (uint32_t i = 0; i < CONFORM_ARENA_BYTES; ++i) {
        arena[i] = pattern(i, flip);
    }
    uint32_t next = CONFORM_GUARD_BYTES;
    for (uint32_t k = 0; k < kernel->count; ++k) {
        const uint32_t alignment = kernel->arguments[k].alignment;
        /* A multiple of the alignment, but not of the next power of two. */
        next = (next + 2 * alignment - 1) / (2 * alignment) * (2 * alignment) + alignment;
        at[k] = arena + next;
        next += kernel->arguments[k].bytes + CONFORM_GUARD_BYTES;
    }
}

static int32_t outside(const struct conform_kernel *kernel, uint8_t **at, uint8_t flip)
{
    uint32_t i = 0;
    for (uint32_t k = 0; k <= kernel->count; ++k) {
        const uint32_t end =
            k < kernel->count ? (uint32_t)(at[k] - arena) : CONFORM_ARENA_BYTES;
        for (; i < end; ++i) {
            if (arena[i] != pattern(i, flip)) {
                return CONFORM_WROTE_OUTSIDE;
            }
        }
        i += k < kernel->count ? kernel->arguments[k].bytes : 0;
    }
    return 0;
}

#endif

static uint32_t inputs_crc(const struct conform_kernel *kernel, uint8_t *const *at)
{
    uint32_t crc = 0;
    for (uint32_t k = 0; k < kernel->count; ++k) {
        if (kernel->arguments[k].role == CONFORM_IN) {
            crc = conform_crc(crc, at[k], kernel->arguments[k].bytes);
        }
    }
    return crc;
}

int32_t conform_run(uint32_t index, uint8_t flip)
{
    const struct conform_kernel *kernel = &conform_table[index];
    uint8_t *at[CONFORM_MOST_ARGUMENTS] = {0};
    place(kernel, at, flip);
    uint32_t position = 0;
    for (uint32_t k = 0; k < kernel->count; ++k) {
        if (kernel->arguments[k].role == CONFORM_IN) {
            conform_input(kernel, position++, at[k]);
        }
    }
    const uint32_t before = inputs_crc(kernel, at);
    conform_call(index, at);
    int32_t found = inputs_crc(kernel, at) == before ? 0 : CONFORM_WROTE_INPUT;
    for (uint32_t k = 0; k < kernel->count; ++k) {
        if (kernel->arguments[k].role == CONFORM_OUT) {
            conform_output(at[k], kernel->arguments[k].bytes);
        }
    }
    found |= outside(kernel, at, flip);
    return found;
}
