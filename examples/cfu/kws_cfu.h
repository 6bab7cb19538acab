/* SPDX-License-Identifier: Apache-2.0 */
/* kws_cfu.h: convolutions by the instructions of CFU-Playground's kws_micro_accel.
 *
 * On RISC-V an instruction is custom-0. Elsewhere, or with KWS_CFU_SIMULATED=1, it is a call of the
 * Verilated module (verilated_cfu.cpp).
 */
#ifndef KWS_CFU_H_
#define KWS_CFU_H_

#include <stdint.h>

#ifndef KWS_CFU_SIMULATED
#ifdef __riscv
#define KWS_CFU_SIMULATED 0
#else
#define KWS_CFU_SIMULATED 1
#endif
#endif

/* A filter [rows, columns, depth] for each output channel reads `depth` channels of the input, from
 * channel `channel_step` times its own number: 0, or 1 for a depthwise convolution. `x_is_raw`
 * chooses the zero point of the input: 83, or -128. */
void kws_cfu_conv(const int8_t *x, const int8_t *filters, const int32_t *bias,
                  const int32_t *multipliers, const int32_t *shifts, int8_t *y, int32_t x_rows,
                  int32_t x_columns, int32_t x_channels, int32_t y_rows, int32_t y_columns,
                  int32_t y_channels, int32_t rows, int32_t columns, int32_t depth,
                  int32_t channel_step, int32_t step_down, int32_t step_right, int32_t top,
                  int32_t left, int32_t x_is_raw);

#endif
