/* Long short-term memory of int8. */
#define VALUE int8_t
#define SUM int32_t
#define SCALED stand_in_requantized
#include "stand_in_lstm.h"

arm_cmsis_nn_status arm_lstm_unidirectional_s8(const int8_t *x, int8_t *y,
                                               const cmsis_nn_lstm_params *params,
                                               cmsis_nn_lstm_context *buffers)
{
    return run(x, y, params, buffers);
}
