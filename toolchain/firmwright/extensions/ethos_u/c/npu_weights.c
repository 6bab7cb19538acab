/* SPDX-License-Identifier: Apache-2.0 */
/* npu_weights.c: decompression of a weight stream; see npu.h.
 *
 * A stream consists of slices. A slice has a header, optionally with a new palette, and chunks of
 * symbols. A symbol is quotient * 2^divisor + remainder, its quotient in unary: a chunk has the
 * quotients of up to 12 weights and 12 runs of zeros, then the remainders of the chunk before. A
 * weight's symbol is an index of the palette or, beyond it, a value with the sign in bit 0.
 */
#include "npu.h"

#include <string.h>

#define ZEROS_DISABLED 6u /* divisor codes of a slice's header */
#define END_OF_STREAM 7u
#define WEIGHTS_RAW 7u
#define CHUNK 12u

static uint32_t take(struct npu_weights *weights, unsigned bits)
{
    uint32_t value = 0;
    for (unsigned i = 0; i < bits; i++) {
        if (weights->bit >> 3 >= weights->size) {
            weights->fault = "the weight stream ends early";
            return 0;
        }
        uint32_t byte = weights->bytes[weights->bit >> 3];
        value |= (byte >> (weights->bit & 7u) & 1u) << i;
        weights->bit++;
    }
    return value;
}

static void put_quotient(struct npu_symbols *symbols, uint32_t quotient)
{
    symbols->values[symbols->written++ % NPU_SYMBOLS] = (uint16_t)quotient;
}

/* ---- Slices ---------------------------------------------------------------------------------- */

static void read_palette(struct npu_weights *weights)
{
    weights->direct_offset = (uint8_t)take(weights, 5);
    uint32_t size = take(weights, 5);
    weights->palette_size = (uint8_t)(size > 0 ? size + 1 : 0);
    unsigned bits = take(weights, 3) + 2;
    for (unsigned i = 0; i < weights->palette_size; i++) {
        weights->palette[i] = (uint16_t)take(weights, bits);
    }
    weights->has_palette = true;
    weights->raw_bits = (uint8_t)bits;
    if (weights->palette_size > 0) {
        weights->raw_bits = 0;
        while (1u << weights->raw_bits < weights->palette_size) {
            weights->raw_bits++;
        }
    }
}

/* Reads the next slice's header; false at the end. */
static bool open_slice(struct npu_weights *weights)
{
    unsigned zeros = END_OF_STREAM;
    while (zeros == END_OF_STREAM) {
        if (weights->bit >> 3 >= weights->size) {
            return false;
        }
        zeros = take(weights, 3);
        if (zeros == END_OF_STREAM) {
            weights->bit = (weights->bit + 7u) & ~UINT64_C(7);
            weights->has_palette = false;
        }
    }
    if (weights->bit >> 3 >= weights->size) {
        return false;
    }
    bool had_zeros = weights->has_zeros;
    weights->has_zeros = zeros != ZEROS_DISABLED;
    weights->zeros_divisor = (uint8_t)zeros;
    weights->weight_count = take(weights, 15) + 1;
    weights->weight_divisor = (uint8_t)take(weights, 3);
    weights->is_truncated = take(weights, 1) != 0;
    bool has_new_palette = take(weights, 1) != 0;
    if (has_new_palette) {
        read_palette(weights);
    } else if (!weights->has_palette || had_zeros != weights->has_zeros) {
        weights->fault = "a slice of the weight stream has no palette";
    }
    weights->is_raw = weights->weight_divisor == WEIGHTS_RAW;
    if (weights->is_raw) {
        weights->weight_divisor = weights->raw_bits;
    } else if (weights->weight_divisor > 5) {
        weights->fault = "unknown divisor in the weight stream";
    }
    if (zeros > 3 && weights->has_zeros) {
        weights->fault = "unknown divisor in the weight stream";
    }
    weights->zeros_count = weights->has_zeros ? weights->weight_count + has_new_palette : 0;
    weights->zeros_are_next = weights->has_zeros && has_new_palette;
    weights->weight = (struct npu_symbols){.carry = 0};
    weights->zeros = (struct npu_symbols){.carry = 0};
    return weights->fault == NULL;
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

static void read_zero_quotients(struct npu_weights *weights)
{
    struct npu_symbols *zeros = &weights->zeros;
    unsigned length = weights->zeros_divisor < 3 ? CHUNK : 8;
    uint32_t unary = take(weights, length);
    for (unsigned i = 0; i < length; i++) {
        if ((unary >> i & 1u) != 0) {
            zeros->carry++;
        } else {
            put_quotient(zeros, zeros->carry);
            zeros->carry = 0;
        }
    }
}

/* A quotient's digits are 0, 1 and 2: `first` has a bit for each that is not 0, the bits after it
 * distinguish 1 and 2. A digit below 2 ends the quotient; a truncated quotient has one digit. */
static void read_weight_quotients(struct npu_weights *weights, uint32_t first, unsigned length)
{
    struct npu_symbols *weight = &weights->weight;
    for (unsigned i = 0; i < length; i++) {
        unsigned digit = first >> i & 1u;
        digit += digit != 0 ? take(weights, 1) : 0;
        weight->carry = (uint16_t)(weight->carry + digit);
        if (digit < 2 || weights->is_truncated) {
            put_quotient(weight, weight->carry);
            weight->carry = 0;
        }
    }
}

static void read_remainders(struct npu_weights *weights, struct npu_symbols *symbols, uint32_t end,
                            unsigned bits)
{
    for (; symbols->complete < end; symbols->complete++) {
        uint16_t *value = &symbols->values[symbols->complete % NPU_SYMBOLS];
        *value = (uint16_t)((uint32_t)*value << bits | take(weights, bits));
    }
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Weights and runs of zeros are throttled against each other, as in the encoder. */
static void read_chunk(struct npu_weights *weights)
{
    struct npu_symbols *weight = &weights->weight;
    struct npu_symbols *zeros = &weights->zeros;
    int32_t balance = weights->has_zeros ? (int32_t)(weight->written - zeros->written) : 0;
    bool has_weights = balance < 8 && weight->written < weights->weight_count;
    bool has_runs = balance >= 0 && zeros->written < weights->zeros_count;
    uint32_t weight_end = smaller(weight->written, weights->weight_count);
    uint32_t zeros_end = smaller(zeros->written, weights->zeros_count);
    uint32_t first = has_weights && !weights->is_raw ? take(weights, CHUNK) : 0;
    if (has_runs) {
        read_zero_quotients(weights);
    }
    if (has_weights) {
        bool is_wide = weights->is_raw && weights->weight_divisor > 5;
        read_weight_quotients(weights, first, is_wide ? 8 : CHUNK);
    }
    read_remainders(weights, weight, weight_end, weights->weight_divisor);
    read_remainders(weights, zeros, zeros_end, weights->zeros_divisor);
}

static uint32_t next_symbol(struct npu_weights *weights, struct npu_symbols *symbols)
{
    while (symbols->read == symbols->complete && weights->fault == NULL) {
        read_chunk(weights);
    }
    return symbols->values[symbols->read++ % NPU_SYMBOLS];
}

/* ---- The interface --------------------------------------------------------------------------- */

void npu_weights_open(struct npu_weights *weights, const uint8_t *bytes, uint32_t size)
{
    memset(weights, 0, sizeof *weights);
    weights->bytes = bytes;
    weights->size = size;
}

static int32_t decode(struct npu_weights *weights, uint32_t symbol)
{
    uint32_t value = symbol < weights->palette_size
                         ? weights->palette[symbol]
                         : symbol - weights->palette_size + weights->direct_offset;
    int32_t magnitude = (int32_t)(value >> 1);
    if (magnitude > 255) {
        weights->fault = "a weight exceeds 9 bits";
    }
    return (value & 1u) != 0 ? -magnitude : magnitude;
}

/* Whether the current slice has symbols left. */
static bool is_in_slice(const struct npu_weights *weights)
{
    return weights->weight.read < weights->weight_count ||
           weights->zeros.read < weights->zeros_count;
}

int32_t npu_weights_next(struct npu_weights *weights)
{
    while (weights->fault == NULL) {
        if (weights->pending > 0) {
            weights->pending--;
            return 0;
        }
        if (!is_in_slice(weights)) {
            if (!open_slice(weights) && weights->fault == NULL) {
                weights->fault = "the weight stream has too few weights";
            }
        } else if (weights->zeros_are_next) {
            weights->pending = next_symbol(weights, &weights->zeros);
            weights->zeros_are_next = false;
        } else {
            weights->zeros_are_next = weights->has_zeros;
            return decode(weights, next_symbol(weights, &weights->weight));
        }
    }
    return 0;
}

bool npu_weights_at_end(struct npu_weights *weights)
{
    while (weights->fault == NULL && weights->pending == 0) {
        if (!is_in_slice(weights)) {
            return !open_slice(weights) && weights->fault == NULL;
        }
        if (!weights->zeros_are_next) {
            return false;
        }
        weights->pending = next_symbol(weights, &weights->zeros);
        weights->zeros_are_next = false;
    }
    return false;
}
