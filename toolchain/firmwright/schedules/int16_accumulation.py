"""Accumulation of int16 layers in 32-bit chunks, and their epilogue."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT16, INT32, INT64, Array, DType
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, immediate
from firmwright.ops.conv2d import bias_of, requantization_of
from firmwright.ops.fully_connected import defined_requantization
from firmwright.ops.int16x8 import ExactScale, accumulator_dtype, requantize_epilogue
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization
from firmwright.schedules.epilogue import (
    FinishElement,
    RequantizeEpilogue,
    accumulator_bounds,
    make_epilogue,
)

# A sum may need 64 bits, but a product of int16 and int8 takes 23, so more than 500 of them fit 32
# bits without the bias. Kernels accumulate chunks in 32 bits and add chunks and bias in 64. This is
# exact and takes fewer instructions than 64-bit accumulation throughout (SMLALD, VMLALDAVA), which
# uses two registers per sum.

_INPUT_REACH = -INT16.min


@dataclass(frozen=True, slots=True)
class Int16Accumulation:
    """The bias and epilogue of a layer's sums; `dtype` is the type of a complete sum."""

    dtype: DType
    bias: tir.Buffer
    step: RequantizeEpilogue | Callable[[ArithExpr, ArithExpr], ArithExpr]

    @property
    def is_wide(self) -> bool:
        return self.dtype == INT64

    def start(self, b: Kernel, channel: ArithExpr) -> ArithExpr:
        return ArithExpr(immediate(0, INT32)) if self.is_wide else b.load(self.bias, [channel])

    def bind_channel(self, b: Kernel, channel: ArithExpr) -> FinishElement:
        """Return a function that converts a 32-bit sum (begun with `start`) to the output."""
        finish = self.bind_wide_channel(b, channel)
        if not self.is_wide:
            return finish
        bias = b.let("channel_bias", b.load(self.bias, [channel]))
        return lambda total: finish(total.cast(INT64) + bias)

    def bind_wide_channel(self, b: Kernel, channel: ArithExpr) -> FinishElement:
        """Return a function that converts a complete sum, of `dtype` with bias, to the output."""
        step = self.step
        if isinstance(step, RequantizeEpilogue):
            return step.bind_channel(b, channel)
        return lambda total: step(total, channel)


def plan_int16_accumulation(
    b: Kernel, op: OpCall, kernel: Array, axis: int = 0
) -> Int16Accumulation:
    """Plan a layer with weights `kernel` [channel, ...]; `axis` is the model's channel axis."""
    dtype, step = accumulator_dtype(op, axis), _step(op)
    bias = bias_of(op, "int32")
    buffer = b.constant("bias", bias, dtype)
    if dtype == INT64 or isinstance(step, ExactScale):
        return Int16Accumulation(
            dtype, buffer, requantize_epilogue(b, step, dtype, op.output.dtype)
        )
    bounds = accumulator_bounds(bias, kernel, INT16.min, INT16.max)
    return Int16Accumulation(dtype, buffer, make_epilogue(b, step, bounds, INT16, len(kernel)))


def _step(op: OpCall) -> Requantization | ExactScale:
    return defined_requantization(op) if op.op == "fully_connected" else requantization_of(op)


def longest_dividing_chunk(flat: Array, steps: int) -> int:
    """Return the longest chunk that divides `steps` and has 32-bit sums.

    `flat` holds the weights [channel, tap]; every step has the same number of taps.
    """
    by_step = _by_step(flat, flat.shape[1] // steps)
    divisors = (n for n in range(steps, 1, -1) if steps % n == 0)
    return next((chunk for chunk in divisors if _fits(by_step, chunk)), 1)


def longest_chunk(flat: Array, taps: int) -> int:
    by_step = _by_step(flat, taps)
    steps = by_step.shape[1]
    lengths = (-(-steps // chunks) for chunks in range(1, steps + 1))
    return next((chunk for chunk in lengths if _fits(by_step, chunk)), 1)


def _by_step(flat: Array, taps: int) -> Array:
    """Return each step's sum of weight magnitudes; the last step is zero-padded."""
    padded = np.pad(np.abs(flat.astype(np.int64)), ((0, 0), (0, -flat.shape[1] % taps)))
    sums: Array = padded.reshape(len(flat), -1, taps).sum(axis=2)
    return sums


def _fits(by_step: Array, chunk: int) -> bool:
    padded = np.pad(by_step, ((0, 0), (0, -by_step.shape[1] % chunk)))
    reach = padded.reshape(len(by_step), -1, chunk).sum(axis=2).max(initial=0)
    return int(reach) * _INPUT_REACH <= INT32.max
