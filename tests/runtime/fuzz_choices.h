/* fuzz_choices.h: an input of libFuzzer as a sequence of choices.
 *
 * A structure-aware fuzz test reads its decisions from the input: which command, which number. So
 * each input is a valid sequence around hostile values, and libFuzzer still sees what each byte
 * changes. After the end of the input every choice is 0.
 */
#ifndef FUZZ_CHOICES_H
#define FUZZ_CHOICES_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
    const uint8_t *data;
    size_t size;
} choices;

static inline void begin_choices(const uint8_t *data, size_t size)
{
    choices.data = data;
    choices.size = size;
}

static inline uint8_t choose_byte(void)
{
    if (choices.size == 0) {
        return 0;
    }
    choices.size--;
    return *choices.data++;
}

/* Up to 256 alternatives. */
static inline uint32_t choose_below(uint32_t count)
{
    return choose_byte() % count;
}

/* A number of `bytes` bytes: one of `known`, a power of two or its neighbour, or any. */
static inline uint32_t choose_number(uint32_t bytes, const uint32_t *known, uint32_t known_count)
{
    uint32_t value = 0;
    uint32_t how = choose_byte();
    if (how < 128u) {
        return known[how % known_count];
    }
    if (how < 192u) {
        return (UINT32_C(1) << (how & 31u)) - (how >> 5 & 1u);
    }
    for (uint32_t i = 0; i < bytes; i++) {
        value = value << 8 | choose_byte();
    }
    return value;
}

#endif
