/* harness.h: run single kernels and check their memory accesses.
 *
 * The arena is filled with a pattern. Arguments are placed CONFORM_GUARD_BYTES apart, with exactly
 * the alignment that the kernel requires. After the run, only bytes that the kernel may write can
 * differ. A result that depends on bytes outside the arguments, or on uninitialized bytes, differs
 * between a pattern and its complement. Under AddressSanitizer each argument is a separate heap
 * block instead.
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
    uint32_t kind; /* enum conform_kind */
};

struct conform_kernel {
    uint32_t layer; /* its number, used in the seed of its inputs */
    uint32_t count;
    struct conform_argument arguments[CONFORM_MOST_ARGUMENTS];
};

/* Status of a run; 0 on success. */
#define CONFORM_WROTE_OUTSIDE 1
#define CONFORM_WROTE_INPUT 2

/* Provided by the host or board program: write the bytes of input number `position` of the kernel,
 * and receive the bytes of a result. */
void conform_input(const struct conform_kernel *kernel, uint32_t position, uint8_t *to);
void conform_output(const uint8_t *from, uint32_t bytes);

/* Run a kernel; `flip` selects the pattern (0) or its complement (0xff). */
int32_t conform_run(uint32_t kernel, uint8_t flip);

/* Return byte `i` of the random sequence of a seed. */
uint8_t conform_byte(uint32_t seed, uint32_t i);

uint32_t conform_crc(uint32_t crc, const uint8_t *bytes, uint32_t count);

#endif
