/* Long short-term memory of int16. */
#define VALUE int16_t
#define SUM int64_t
#define SCALED stand_in_requantized_wide
#include "stand_in_lstm.h"

arm_cmsis_nn_status arm_lstm_unidirectional_s16(const int16_t *x, int16_t *y,
                                                const cmsis_nn_lstm_params *params,
                                                cmsis_nn_lstm_context *buffers)
{
    return run(x, y, params, buffers);
}
