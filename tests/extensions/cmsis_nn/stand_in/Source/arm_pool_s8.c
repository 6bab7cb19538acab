/* Pools of int8. */
#define VALUE int8_t
#include "stand_in_pool.h"

arm_cmsis_nn_status arm_max_pool_s8(const cmsis_nn_context *context,
                                    const cmsis_nn_pool_params *params, const cmsis_nn_dims *input,
                                    const int8_t *x, const cmsis_nn_dims *filter,
                                    const cmsis_nn_dims *output, int8_t *y)
{
    (void)context;
    return pool(params, input, x, filter, output, y, 0);
}

arm_cmsis_nn_status arm_avgpool_s8(const cmsis_nn_context *context,
                                   const cmsis_nn_pool_params *params, const cmsis_nn_dims *input,
                                   const int8_t *x, const cmsis_nn_dims *filter,
                                   const cmsis_nn_dims *output, int8_t *y)
{
    (void)context;
    return pool(params, input, x, filter, output, y, 1);
}
