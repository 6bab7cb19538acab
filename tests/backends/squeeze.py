"""Example backend that writes C for each region and stores weights in fewer bits."""

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT8
from firmwright.base.quant import Rounding
from firmwright.ir.graph.patterns import constant, op, wildcard
from firmwright.ops import conv2d, fully_connected
from firmwright.targets.backend import Backend, PatternEntry

# Sixteen weights take the number of bits of the largest one, after a three-bit field
# with that number: lossless, and usually smaller. Supports int8 fully connected layers
# and 1 x 1 convolutions, with one unpacking loop per layer.

BLOCK = 16
ONCE = "(int32_t)(((int64_t)sum * multiplier + ((int64_t)1 << (30 - shift))) >> (31 - shift))"
SOURCE = """\
#include <stdint.h>

static int32_t bits(const uint8_t *packed, int32_t *at, int32_t count)
{{
    uint32_t value = 0;
    for (int32_t i = 0; i < count; ++i, ++*at) {{
        value |= (uint32_t)(packed[*at >> 3] >> (*at & 7) & 1) << i;
    }}
    return (int32_t)value;
}}

static int32_t twice(int32_t sum, int32_t multiplier, int32_t shift)
{{
    const int32_t left = shift > 0 ? shift : 0;
    const int32_t right = shift > 0 ? 0 : -shift;
    const int64_t product = (int64_t)(int32_t)((uint32_t)sum << left) * multiplier;
    const int32_t high = (int32_t)((product + ((int64_t)1 << 30)) >> 31);
    const int32_t mask = (int32_t)(((uint32_t)1 << right) - 1u);
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0 ? 1 : 0) ? 1 : 0);
}}

void {symbol}(const int8_t *x, const uint8_t *packed, const int32_t *bias,
              const int32_t *factors, int8_t *y, int8_t *row)
{{
    (void)twice;
    int32_t at = 0;
    for (int32_t o = 0; o < {outputs}; ++o) {{
        for (int32_t i = 0; i < {inputs}; i += {block}) {{
            const int32_t width = bits(packed, &at, 3) + 1;
            for (int32_t k = i; k < {inputs} && k < i + {block}; ++k) {{
                const uint32_t raw = (uint32_t)bits(packed, &at, width) << (32 - width);
                row[k] = (int8_t)((int32_t)raw >> (32 - width));
            }}
        }}
        const int32_t multiplier = factors[2 * o], shift = factors[2 * o + 1];
        for (int32_t n = 0; n < {rows}; ++n) {{
            int32_t sum = bias[o];
            for (int32_t i = 0; i < {inputs}; ++i) {{
                sum += (x[n * {inputs} + i] - ({x_zero})) * row[i];
            }}
            int32_t value = {scaled} + ({y_zero});
            value = value < {low} ? {low} : value > {high} ? {high} : value;
            y[n * {outputs} + o] = (int8_t)value;
        }}
    }}
}}
"""


def packed(weights):
    """Pack the rows of a matrix as a bit stream."""
    stream = []
    for row in weights.astype(np.int64):
        for start in range(0, len(row), BLOCK):
            block = row[start : start + BLOCK]
            width = max(int(v if v >= 0 else ~v).bit_length() + 1 for v in block)
            stream += [(width - 1) >> i & 1 for i in range(3)]
            stream += [int(v) >> i & 1 for v in block for i in range(width)]
    return np.packbits(np.array(stream, np.uint8), bitorder="little")


class Squeeze(Backend):
    """Matrix layers with compressed weights."""

    name = "squeeze"

    def patterns(self):
        dense = op("fully_connected", wildcard(), constant(), constant(absent=True))
        point = op(
            "conv2d",
            wildcard(),
            constant(),
            constant(absent=True),
            stride=(1, 1),
            padding=(0, 0, 0, 0),
        )
        return [
            PatternEntry("dense", dense, self.takes),
            PatternEntry("point", point, self.takes),
        ]

    def takes(self, match):
        (call,) = match.ops
        if call.input(0).dtype != INT8:
            return False
        if call.op == "conv2d":
            return call.input(1).shape[1:3] == (1, 1)
        return fully_connected.has_int32_multiplier(call)

    def generate(self, kernel):
        (call,) = kernel.ops
        home = fully_connected if call.op == "fully_connected" else conv2d
        weights = call.constant(1).array().reshape(call.input(1).shape[0], -1)
        outputs, inputs = weights.shape
        step = home.requantization_of(call)
        pairs = np.array([step.multipliers, step.shifts], np.int32)
        factors = np.broadcast_to(pairs.T, (outputs, 2))
        once = step.rounding == Rounding.ONCE
        text = SOURCE.format(
            symbol=kernel.symbol,
            outputs=outputs,
            inputs=inputs,
            rows=call.output.elements // outputs,
            block=BLOCK,
            x_zero=call.input(0).quantization.zero_point,
            y_zero=step.zero_point,
            low=step.clamp_min,
            high=step.clamp_max,
            scaled=ONCE if once else "twice(sum, multiplier, shift)",
        )
        kernel.file(f"{kernel.symbol}.c", text)
        row = kernel.workspace("row", inputs, dtype=INT8)
        arguments = [
            kernel.inputs[0],
            kernel.constant("packed", packed(weights), UINT8),
            kernel.constant("bias", conv2d.bias_of(call, "int32"), INT32),
            kernel.constant("factors", factors, INT32),
            kernel.outputs[0],
            row,
        ]
        kernel.extern(kernel.symbol, arguments)
