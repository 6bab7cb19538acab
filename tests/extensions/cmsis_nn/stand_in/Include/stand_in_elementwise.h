/* A term brought to a common scale, and a result to the output's.
 *
 * VALUE is the type of activations; it is set before this is included.
 */
#include "arm_nnfunctions.h"

struct step {
    int32_t offset, multiplier, shift;
};

static inline int32_t term(int32_t value, struct step step, int32_t left)
{
    return stand_in_requantized((value + step.offset) * (1 << left), step.multiplier, step.shift);
}

static inline VALUE result(int32_t value, struct step step, cmsis_nn_activation range)
{
    const int32_t scaled = stand_in_requantized(value, step.multiplier, step.shift);
    return (VALUE)stand_in_clipped(scaled + step.offset, range);
}
