/* Long short-term memory, one unit of one step after the other.
 *
 * VALUE is the type of activations, SUM that of a gate's sums and SCALED(sum, multiplier, shift)
 * how those are requantised; all are set before this is included. Logistic and tanh are read from
 * the table that TFLite's reference has: logistic(i / 24) in 16 bits, some entries one above.
 */
#include <math.h>
#include <string.h>

#include "arm_nnfunctions.h"

static const cmsis_nn_activation whole = {INT16_MIN, INT16_MAX};

static int32_t entry(int32_t index)
{
    static const uint8_t above[] = {4,  8,  12, 14, 15, 16, 17, 19, 20,  21,  22,  25,  27,  28, 29,
                                    30, 31, 33, 34, 35, 37, 39, 40, 41,  43,  44,  45,  46,  49, 50,
                                    54, 62, 63, 64, 66, 82, 86, 93, 100, 103, 112, 116, 135, 255};
    const int32_t at = index > 255 ? 255 : index;
    const int32_t nearest = (int32_t)floor(65536.0 / (1.0 + exp(-at / 24.0)) + 0.5);
    return nearest + (memchr(above, at, sizeof above) != NULL ? 1 : 0);
}

static int32_t activated(int32_t value, int32_t factor, arm_nn_activation_type type)
{
    const int32_t scaled = value * factor, size = scaled < 0 ? -scaled : scaled;
    const int32_t bits = type == ARM_TANH ? 8 : 9, at = size >> bits;
    int32_t found = type == ARM_TANH ? 0xFFFF << 8 : 0x7FFF << 10;
    if (at < 255) {
        found = (entry(at) << bits) + (size & ((1 << bits) - 1)) * (entry(at + 1) - entry(at));
    }
    if (type == ARM_TANH) {
        found = scaled < 0 ? (1 << 23) - found + (1 << 7) - 1 : found - (1 << 23) + (1 << 7);
        return found >> 8;
    }
    return (scaled < 0 ? (1 << 25) - found + (1 << 9) - 1 : found + (1 << 9)) >> 10;
}

static int32_t side(const VALUE *x, const int8_t *w, int32_t count, const SUM *bias, int32_t unit,
                    int32_t multiplier, int32_t shift)
{
    SUM sum = bias[unit];
    for (int32_t i = 0; i < count; ++i) {
        sum += x[i] * w[unit * count + i];
    }
    return stand_in_clipped(SCALED(sum, multiplier, shift), whole);
}

static int32_t gate_of(const cmsis_nn_lstm_params *params, const cmsis_nn_lstm_gate *gate,
                       const VALUE *x, const VALUE *hidden, int32_t unit)
{
    const int32_t own = side(x, gate->input_weights, params->input_size, gate->input_effective_bias,
                             unit, gate->input_multiplier, gate->input_shift);
    const int32_t recurrent =
        side(hidden, gate->hidden_weights, params->hidden_size, gate->hidden_effective_bias, unit,
             gate->hidden_multiplier, gate->hidden_shift);
    return activated(stand_in_clipped(own + recurrent, whole), 3, gate->activation_type);
}

static void step(const cmsis_nn_lstm_params *params, const VALUE *x, const VALUE *hidden,
                 int16_t *cells, VALUE *y)
{
    const cmsis_nn_activation limit = {-params->cell_clip, params->cell_clip};
    const cmsis_nn_activation range = {sizeof(VALUE) == 1 ? INT8_MIN : INT16_MIN,
                                       sizeof(VALUE) == 1 ? INT8_MAX : INT16_MAX};
    for (int32_t u = 0; u < params->hidden_size; ++u) {
        const int32_t kept = gate_of(params, &params->forget_gate, x, hidden, u) * cells[u];
        const int32_t made = gate_of(params, &params->input_gate, x, hidden, u) *
                             gate_of(params, &params->cell_gate, x, hidden, u);
        const int32_t old = stand_in_requantized(kept, params->forget_to_cell_multiplier,
                                                 params->forget_to_cell_shift);
        const int32_t new = stand_in_requantized(made, params->input_to_cell_multiplier,
                                                 params->input_to_cell_shift);
        cells[u] = (int16_t)stand_in_clipped(
            stand_in_clipped(old, whole) + stand_in_clipped(new, whole), limit);
        const int32_t open = gate_of(params, &params->output_gate, x, hidden, u);
        const int32_t shown = activated(cells[u], 3 << (params->cell_scale_power + 12), ARM_TANH);
        const int32_t value =
            stand_in_requantized(open * shown, params->output_multiplier, params->output_shift);
        y[u] = (VALUE)stand_in_clipped(value + params->output_offset, range);
    }
}

static arm_cmsis_nn_status run(const VALUE *x, VALUE *y, const cmsis_nn_lstm_params *params,
                               cmsis_nn_lstm_context *buffers)
{
    const int32_t units = params->hidden_size, batch = params->batch_size;
    for (int32_t n = 0; n < batch; ++n) {
        VALUE *hidden = (VALUE *)buffers->hidden_state + n * units;
        int16_t *cells = (int16_t *)buffers->cell_state + n * units;
        for (int32_t t = 0; t < params->time_steps; ++t) {
            const int32_t at = params->time_major ? t * batch + n : n * params->time_steps + t;
            step(params, x + at * params->input_size, hidden, cells, y + at * units);
            memcpy(hidden, y + at * units, (size_t)units * sizeof(VALUE));
        }
    }
    return ARM_CMSIS_NN_SUCCESS;
}
