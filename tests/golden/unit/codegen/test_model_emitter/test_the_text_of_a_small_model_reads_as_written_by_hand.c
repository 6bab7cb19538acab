#include "m.h"

#include <limits.h>

#if defined(INT_MAX) && INT_MAX < 2147483647
#error "The model needs an int of at least 32 bits: compile it for a 32-bit processor."
#endif

#include <stddef.h>
#include <stdint.h>

#include "m_weights.h"

/* Invoked before (phase 0) and after (phase 1) each operator, with its first output. */
#ifdef M_PROBE_HEADER
#include M_PROBE_HEADER
#endif
#ifndef M_PROBE
#define M_PROBE(operator_index, phase, output, bytes) ((void)0)
#endif

/* ---- Compiler ---- */

#if defined(__GNUC__) && !defined(__FRAMAC__)
#define M_KERNEL static __attribute__((noinline))
#define M_INLINE static inline __attribute__((always_inline))
#else
#define M_KERNEL static
#define M_INLINE static inline
#endif

/* Large assembly blocks need the registers that only optimized builds leave free. Where options
 * keep a frame pointer, compile this file with -fomit-frame-pointer, or without assembly with
 * -DM_NO_INLINE_ASM: results are equal, but kernels are slower.
 */
#if defined(__GNUC__) && defined(__OPTIMIZE__) && !defined(M_NO_INLINE_ASM)
#define M_INLINE_ASM 1
#else
#define M_INLINE_ASM 0
#endif

#if M_INLINE_ASM && defined(__ARM_FEATURE_SAT)
#define M_ASM_SAT 1
#else
#define M_ASM_SAT 0
#endif

/* ---- Memory plan: pool offsets of buffers, checked at compile time ---- */

#define M_PLACE(pool, buffer, offset, bytes, alignment) \
    enum { M_OFFSET_##buffer = (offset) }; \
    typedef char m_fits_##buffer[(offset) + (bytes) <= pool##_SIZE && \
                                  (offset) % (alignment) == 0 && \
                                  pool##_ALIGN % (alignment) == 0 ? 1 : -1]
#define M_IN_SRAM(buffer, offset, bytes, alignment) \
    M_PLACE(M_SRAM, buffer, offset, bytes, alignment)

M_IN_SRAM(T_X,  0, 8, 1);
M_IN_SRAM(T_Y, 16, 3, 1);

/* ---- Helper functions ---- */

/* x / 16, rounded down and saturated. Requantizations have added
 * zero_point * 16 + 8 to x: the output's zero point, and half a unit for
 * rounding to nearest. For the zero point -128 this is -2040.
 */
M_INLINE int8_t m_saturate_i8_asr4(int32_t x)
{
#if M_ASM_SAT
    int32_t result;
    __asm__("ssat %0, #8, %1, asr #4" : "=r"(result) : "r"(x));
    return (int8_t)result;
#else
    const int32_t value = x >> 4;
    return (int8_t)(value < -128 ? -128 : value > 127 ? 127 : value);
#endif
}

/* ---- Kernels ---- */

/* fully_connected_0
 * x int8[8] -> y int8[3]
 * m.tflite: subgraph 0, node 0 (t/y)
 * schedule rows
 */
M_KERNEL void m_fully_connected_0(const int8_t *x, int8_t *y)
{
    const int8_t *w = m_fully_connected_0_w; /* [3, 8] */
    const int32_t *bias = m_fully_connected_0_bias; /* [3] */
    for (int64_t o = 0; o < 3; ++o) {
        const int8_t *row = w + o * 8;
        int32_t acc = bias[o];
        for (int64_t k = 0; k < 8; ++k) {
            acc += row[k] * (x[k] + 3);
        }
        y[o] = m_saturate_i8_asr4(acc);
    }
}

/* ---- The model ---- */

