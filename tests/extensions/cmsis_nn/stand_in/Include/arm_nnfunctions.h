/* A stand-in for CMSIS-NN in tests: the signatures of what the backend calls, written plainly.
 *
 * The names and the order of parameters and members are the interface; everything behind it is
 * from the definition of the operators, one value after the other.
 */
#ifndef ARM_NNFUNCTIONS_H
#define ARM_NNFUNCTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARM_CMSIS_NN_SUCCESS 0
#define ARM_CMSIS_NN_ARG_ERROR (-1)

typedef int32_t arm_cmsis_nn_status;

typedef struct {
    void *buf;
    int32_t size;
} cmsis_nn_context;

typedef struct {
    int32_t n, h, w, c;
} cmsis_nn_dims;

typedef struct {
    int32_t w, h;
} cmsis_nn_tile;

typedef struct {
    int32_t min, max;
} cmsis_nn_activation;

typedef struct {
    int32_t *multiplier, *shift;
} cmsis_nn_per_channel_quant_params;

typedef struct {
    int32_t multiplier, shift;
} cmsis_nn_per_tensor_quant_params;

typedef struct {
    int32_t input_offset, output_offset;
    cmsis_nn_tile stride, padding, dilation;
    cmsis_nn_activation activation;
} cmsis_nn_conv_params;

typedef struct {
    int32_t input_offset, output_offset, ch_mult;
    cmsis_nn_tile stride, padding, dilation;
    cmsis_nn_activation activation;
} cmsis_nn_dw_conv_params;

typedef struct {
    int32_t input_offset, filter_offset, output_offset;
    cmsis_nn_activation activation;
} cmsis_nn_fc_params;

typedef struct {
    cmsis_nn_tile stride, padding;
    cmsis_nn_activation activation;
} cmsis_nn_pool_params;

typedef struct {
    const void *data;
    const bool is_int32_bias;
} cmsis_nn_bias_data;

typedef struct {
    int32_t input_offset, output_offset;
    cmsis_nn_tile stride, padding, padding_offsets, dilation;
    cmsis_nn_activation activation;
} cmsis_nn_transpose_conv_params;

typedef struct {
    const bool adj_x, adj_y;
    cmsis_nn_fc_params fc_params;
} cmsis_nn_bmm_params;

typedef struct {
    int32_t rank, input_offset, output_offset;
    cmsis_nn_activation input_activation, output_activation;
} cmsis_nn_svdf_params;

typedef struct {
    const int16_t *exp_lut, *one_by_one_lut;
} cmsis_nn_softmax_lut_s16;

typedef enum { ARM_SIGMOID = 0, ARM_TANH = 1 } arm_nn_activation_type;

typedef struct {
    int32_t input_multiplier, input_shift;
    const void *input_weights, *input_effective_bias;
    int32_t hidden_multiplier, hidden_shift;
    const void *hidden_weights, *hidden_effective_bias;
    const void *bias;
    arm_nn_activation_type activation_type;
} cmsis_nn_lstm_gate;

typedef struct {
    int32_t time_major, batch_size, time_steps, input_size, hidden_size, input_offset;
    int32_t forget_to_cell_multiplier, forget_to_cell_shift;
    int32_t input_to_cell_multiplier, input_to_cell_shift;
    int32_t cell_clip, cell_scale_power;
    int32_t output_multiplier, output_shift, output_offset;
    cmsis_nn_lstm_gate forget_gate, input_gate, cell_gate, output_gate;
} cmsis_nn_lstm_params;

typedef struct {
    void *temp1, *temp2, *cell_state, *hidden_state;
} cmsis_nn_lstm_context;

arm_cmsis_nn_status arm_convolve_wrapper_s8(const cmsis_nn_context *context,
                                            const cmsis_nn_conv_params *params,
                                            const cmsis_nn_per_channel_quant_params *quant,
                                            const cmsis_nn_dims *input, const int8_t *x,
                                            const cmsis_nn_dims *filter, const int8_t *w,
                                            const cmsis_nn_dims *channels, const int32_t *bias,
                                            const cmsis_nn_dims *output, int8_t *y);
arm_cmsis_nn_status arm_depthwise_conv_wrapper_s8(
    const cmsis_nn_context *context, const cmsis_nn_dw_conv_params *params,
    const cmsis_nn_per_channel_quant_params *quant, const cmsis_nn_dims *input, const int8_t *x,
    const cmsis_nn_dims *filter, const int8_t *w, const cmsis_nn_dims *channels,
    const int32_t *bias, const cmsis_nn_dims *output, int8_t *y);
arm_cmsis_nn_status arm_fully_connected_s8(const cmsis_nn_context *context,
                                           const cmsis_nn_fc_params *params,
                                           const cmsis_nn_per_tensor_quant_params *quant,
                                           const cmsis_nn_dims *input, const int8_t *x,
                                           const cmsis_nn_dims *filter, const int8_t *w,
                                           const cmsis_nn_dims *channels, const int32_t *bias,
                                           const cmsis_nn_dims *output, int8_t *y);
arm_cmsis_nn_status arm_max_pool_s8(const cmsis_nn_context *context,
                                    const cmsis_nn_pool_params *params, const cmsis_nn_dims *input,
                                    const int8_t *x, const cmsis_nn_dims *filter,
                                    const cmsis_nn_dims *output, int8_t *y);
arm_cmsis_nn_status arm_avgpool_s8(const cmsis_nn_context *context,
                                   const cmsis_nn_pool_params *params, const cmsis_nn_dims *input,
                                   const int8_t *x, const cmsis_nn_dims *filter,
                                   const cmsis_nn_dims *output, int8_t *y);
void arm_softmax_s8(const int8_t *x, const int32_t rows, const int32_t depth,
                    const int32_t multiplier, const int32_t shift, const int32_t least, int8_t *y);
arm_cmsis_nn_status arm_elementwise_add_s8(const int8_t *a, const int8_t *b, const int32_t a_offset,
                                           const int32_t a_multiplier, const int32_t a_shift,
                                           const int32_t b_offset, const int32_t b_multiplier,
                                           const int32_t b_shift, const int32_t left_shift,
                                           int8_t *y, const int32_t y_offset,
                                           const int32_t y_multiplier, const int32_t y_shift,
                                           const int32_t low, const int32_t high,
                                           const int32_t count);

arm_cmsis_nn_status
arm_convolve_wrapper_s16(const cmsis_nn_context *context, const cmsis_nn_conv_params *params,
                         const cmsis_nn_per_channel_quant_params *quant, const cmsis_nn_dims *input,
                         const int16_t *x, const cmsis_nn_dims *filter, const int8_t *w,
                         const cmsis_nn_dims *channels, const cmsis_nn_bias_data *bias,
                         const cmsis_nn_dims *output, int16_t *y);
arm_cmsis_nn_status arm_depthwise_conv_wrapper_s16(
    const cmsis_nn_context *context, const cmsis_nn_dw_conv_params *params,
    const cmsis_nn_per_channel_quant_params *quant, const cmsis_nn_dims *input, const int16_t *x,
    const cmsis_nn_dims *filter, const int8_t *w, const cmsis_nn_dims *channels,
    const int64_t *bias, const cmsis_nn_dims *output, int16_t *y);
arm_cmsis_nn_status arm_transpose_conv_wrapper_s8(
    const cmsis_nn_context *context, const cmsis_nn_context *turn,
    const cmsis_nn_transpose_conv_params *params, const cmsis_nn_per_channel_quant_params *quant,
    const cmsis_nn_dims *input, const int8_t *x, const cmsis_nn_dims *filter, const int8_t *w,
    const cmsis_nn_dims *channels, const int32_t *bias, const cmsis_nn_dims *output, int8_t *y);
arm_cmsis_nn_status arm_fully_connected_per_channel_s8(
    const cmsis_nn_context *context, const cmsis_nn_fc_params *params,
    const cmsis_nn_per_channel_quant_params *quant, const cmsis_nn_dims *input, const int8_t *x,
    const cmsis_nn_dims *filter, const int8_t *w, const cmsis_nn_dims *channels,
    const int32_t *bias, const cmsis_nn_dims *output, int8_t *y);
arm_cmsis_nn_status arm_fully_connected_s16(const cmsis_nn_context *context,
                                            const cmsis_nn_fc_params *params,
                                            const cmsis_nn_per_tensor_quant_params *quant,
                                            const cmsis_nn_dims *input, const int16_t *x,
                                            const cmsis_nn_dims *filter, const int8_t *w,
                                            const cmsis_nn_dims *channels, const int64_t *bias,
                                            const cmsis_nn_dims *output, int16_t *y);
arm_cmsis_nn_status arm_max_pool_s16(const cmsis_nn_context *context,
                                     const cmsis_nn_pool_params *params, const cmsis_nn_dims *input,
                                     const int16_t *x, const cmsis_nn_dims *filter,
                                     const cmsis_nn_dims *output, int16_t *y);
arm_cmsis_nn_status arm_avgpool_s16(const cmsis_nn_context *context,
                                    const cmsis_nn_pool_params *params, const cmsis_nn_dims *input,
                                    const int16_t *x, const cmsis_nn_dims *filter,
                                    const cmsis_nn_dims *output, int16_t *y);
arm_cmsis_nn_status arm_softmax_s16(const int16_t *x, const int32_t rows, const int32_t depth,
                                    const int32_t multiplier, const int32_t shift,
                                    const cmsis_nn_softmax_lut_s16 *tables, int16_t *y);
arm_cmsis_nn_status arm_elementwise_add_s16(const int16_t *a, const int16_t *b,
                                            const int32_t a_offset, const int32_t a_multiplier,
                                            const int32_t a_shift, const int32_t b_offset,
                                            const int32_t b_multiplier, const int32_t b_shift,
                                            const int32_t left_shift, int16_t *y,
                                            const int32_t y_offset, const int32_t y_multiplier,
                                            const int32_t y_shift, const int32_t low,
                                            const int32_t high, const int32_t count);
arm_cmsis_nn_status arm_elementwise_mul_s8(const int8_t *a, const int8_t *b, const int32_t a_offset,
                                           const int32_t b_offset, int8_t *y,
                                           const int32_t y_offset, const int32_t y_multiplier,
                                           const int32_t y_shift, const int32_t low,
                                           const int32_t high, const int32_t count);
arm_cmsis_nn_status arm_elementwise_mul_s16(const int16_t *a, const int16_t *b,
                                            const int32_t a_offset, const int32_t b_offset,
                                            int16_t *y, const int32_t y_offset,
                                            const int32_t y_multiplier, const int32_t y_shift,
                                            const int32_t low, const int32_t high,
                                            const int32_t count);
arm_cmsis_nn_status arm_batch_matmul_s8(const cmsis_nn_context *context,
                                        const cmsis_nn_bmm_params *params,
                                        const cmsis_nn_per_tensor_quant_params *quant,
                                        const cmsis_nn_dims *left, const int8_t *a,
                                        const cmsis_nn_dims *right, const int8_t *b,
                                        const cmsis_nn_dims *output, int8_t *y);
arm_cmsis_nn_status arm_batch_matmul_s16(const cmsis_nn_context *context,
                                         const cmsis_nn_bmm_params *params,
                                         const cmsis_nn_per_tensor_quant_params *quant,
                                         const cmsis_nn_dims *left, const int16_t *a,
                                         const cmsis_nn_dims *right, const int16_t *b,
                                         const cmsis_nn_dims *output, int16_t *y);
arm_cmsis_nn_status arm_svdf_state_s16_s8(
    const cmsis_nn_context *first, const cmsis_nn_context *second,
    const cmsis_nn_svdf_params *params, const cmsis_nn_per_tensor_quant_params *in,
    const cmsis_nn_per_tensor_quant_params *out, const cmsis_nn_dims *input, const int8_t *x,
    const cmsis_nn_dims *kept, int16_t *state, const cmsis_nn_dims *features, const int8_t *feature,
    const cmsis_nn_dims *times, const int16_t *time, const cmsis_nn_dims *sums, const int32_t *bias,
    const cmsis_nn_dims *output, int8_t *y);

arm_cmsis_nn_status arm_lstm_unidirectional_s8(const int8_t *x, int8_t *y,
                                               const cmsis_nn_lstm_params *params,
                                               cmsis_nn_lstm_context *buffers);
arm_cmsis_nn_status arm_lstm_unidirectional_s16(const int16_t *x, int16_t *y,
                                                const cmsis_nn_lstm_params *params,
                                                cmsis_nn_lstm_context *buffers);

#include "stand_in_numbers.h"

#endif
