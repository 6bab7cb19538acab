/* Pools of int16. */
#define VALUE int16_t
#include "stand_in_pool.h"

arm_cmsis_nn_status arm_max_pool_s16(const cmsis_nn_context *context,
                                     const cmsis_nn_pool_params *params, const cmsis_nn_dims *input,
                                     const int16_t *x, const cmsis_nn_dims *filter,
                                     const cmsis_nn_dims *output, int16_t *y)
{
    (void)context;
    return pool(params, input, x, filter, output, y, 0);
}

arm_cmsis_nn_status arm_avgpool_s16(const cmsis_nn_context *context,
                                    const cmsis_nn_pool_params *params, const cmsis_nn_dims *input,
                                    const int16_t *x, const cmsis_nn_dims *filter,
                                    const cmsis_nn_dims *output, int16_t *y)
{
    (void)context;
    return pool(params, input, x, filter, output, y, 1);
}
