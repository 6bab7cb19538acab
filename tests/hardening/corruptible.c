/* A hardened model in which a test flips bits: in its workspace at a probe, in its constants
 * between runs. It is compiled with -Dconst= so that constants are writable, and nothing is known
 * of them. */
#include <stddef.h>
#include <stdint.h>

struct flip {
    int32_t operator_index;
    int32_t phase;
    uint32_t byte;
    uint8_t mask;
};

static struct flip flip = {-1, 0, 0, 0};

static void flip_at(int32_t operator_index, int32_t phase);
#define DIGITS_PROBE(operator_index, phase, output, bytes) flip_at(operator_index, phase)
#include "digits.c"

static uint8_t sram[DIGITS_SRAM_SIZE] __attribute__((aligned(DIGITS_SRAM_ALIGN)));

static void flip_at(int32_t operator_index, int32_t phase)
{
    if (operator_index == flip.operator_index && phase == flip.phase) {
        sram[flip.byte] ^= flip.mask;
    }
}

/* Runs the model with a flip at a probe; a mask of 0 flips nothing. */
int32_t run_with_flip(const int8_t *image, int8_t *digit, int32_t operator_index, int32_t phase,
                      uint32_t byte, uint8_t mask);

int32_t run_with_flip(const int8_t *image, int8_t *digit, int32_t operator_index, int32_t phase,
                      uint32_t byte, uint8_t mask)
{
    const struct digits_workspace_pools pools = {.sram = sram};
    struct digits_inputs in;
    struct digits_outputs out;
    flip = (struct flip){operator_index, phase, byte, mask};
    if (digits_map_io(&pools, &in, &out) != DIGITS_OK) {
        return DIGITS_E_NULL;
    }
    __builtin_memcpy(in.image, image, DIGITS_IMAGE_SIZE);
    const int32_t status = digits_run(&in, &out, &pools);
    __builtin_memcpy(digit, out.digit, DIGITS_DIGIT_SIZE);
    return status;
}
