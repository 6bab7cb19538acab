/* harness.h: runs one kernel at a time, each argument alone in memory that is watched.
 *
 * The arena is filled with a pattern, the arguments lie in it as far apart as CONFORM_GUARD_BYTES
 * and no better aligned than the kernel asks for. Afterwards no byte outside of what the kernel may
 * write can have changed. What a kernel reads beyond its arguments, or before it has written it,
 * makes its result depend on the pattern: runs with `flip` 0 and 1 must give the same. Under
 * AddressSanitizer each argument is a block of the heap of exactly its size instead.
 */
#ifndef CONFORM_HARNESS_H
#define CONFORM_HARNESS_H

#include <stdint.h>

#include "count.h" /* CONFORM_KERNELS */

#define CONFORM_GUARD_BYTES 64u
#define CONFORM_MOST_ARGUMENTS 8

enum conform_role { CONFORM_IN, CONFORM_OUT, CONFORM_SCRATCH };
enum conform_kind { CONFORM_INT8, CONFORM_INT16, CONFORM_FLOAT32, CONFORM_OTHER };

struct conform_argument {
    uint32_t bytes;
    uint32_t alignment;
    uint32_t role; /* enum conform_role */
    uint32_t kind; /* enum conform_kind: of its elements */
};

struct conform_kernel {
    uint32_t layer; /* its number: what its inputs are drawn with */
    uint32_t count;
    struct conform_argument arguments[CONFORM_MOST_ARGUMENTS];
};

/* What a run found out; 0 where all is well. */
#define CONFORM_WROTE_OUTSIDE 1
#define CONFORM_WROTE_INPUT 2

/* Made by the program around: gives the bytes of an input (`position` counts the inputs of the
 * kernel), and takes those of a result. */
void conform_input(const struct conform_kernel *kernel, uint32_t position, uint8_t *to);
void conform_output(const uint8_t *from, uint32_t bytes);

/* `flip` is 0 or 0xff: the pattern, or its complement. */
int32_t conform_run(uint32_t kernel, uint8_t flip);

/* Byte `i` of the sequence with that seed. */
uint8_t conform_byte(uint32_t seed, uint32_t i);

uint32_t conform_crc(uint32_t crc, const uint8_t *bytes, uint32_t count);

#endif
