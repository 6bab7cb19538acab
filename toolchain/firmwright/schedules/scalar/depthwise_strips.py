"""depthwise_conv2d of large windows on any core, in strips (schedules/depthwise_strips.py).

One channel at a time, one product per tap. The zero point is subtracted when int8 values are
loaded. Used for int16 and for windows with more taps than registers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, Array
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops.conv2d import bias_of, requantization_of, weights_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import tensor_quant
from firmwright.schedules import depthwise_strips
from firmwright.schedules.epilogue import accumulator_bounds, make_epilogue
from firmwright.schedules.int16_accumulation import Int16Accumulation, plan_int16_accumulation

_FEW_TAPS = 12


def _configs(op: OpCall) -> Sequence[Config]:
    x, (_, height, width, _) = op.input(0), op.input(1).shape
    large = x.dtype == INT8 and height * width > _FEW_TAPS
    return depthwise_strips.strip_configs(op) if large or x.dtype == INT16 else ()


@dataclass(frozen=True, slots=True)
class _SingleChannelTaps:
    taps: tir.Buffer
    x: tir.Buffer
    zero_point: int

    @property
    def channels(self) -> int:
        return 1

    def weights(self, b: Kernel, ky: ArithExpr, kx: int, block: ArithExpr) -> ArithExpr:
        return b.load_i32(self.taps, [ky, kx, block])

    def value(self, b: Kernel, at: Sequence[ArithExpr], block: ArithExpr) -> ArithExpr:
        value = b.load_i32(self.x, [*at, block])
        return value - self.zero_point if self.zero_point else value

    def product(
        self, total: ArithExpr, value: ArithExpr, weights: ArithExpr, channel: int
    ) -> ArithExpr:
        return total + value * weights


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    kernel = weights_of(op)[0]
    by_channel = np.moveaxis(kernel, 2, 0)
    zero_point = tensor_quant(op.input(0)).zero_point
    taps = _SingleChannelTaps(b.constant("weights", kernel, INT8), b.input(0), zero_point)
    is_int16 = op.input(0).dtype == INT16
    sums = (
        plan_int16_accumulation(b, op, by_channel, axis=3)
        if is_int16
        else _int8_sums(b, op, by_channel)
    )
    depthwise_strips.build_strips(op, config, b, taps, sums)


def _int8_sums(b: Kernel, op: OpCall, kernel: Array) -> Int16Accumulation:
    bias, zero_point = bias_of(op, "int32"), tensor_quant(op.input(0)).zero_point
    bounds = accumulator_bounds(bias, kernel, INT8.min - zero_point, INT8.max - zero_point)
    biases = b.constant("bias", bias, INT32)
    return Int16Accumulation(
        INT32, biases, make_epilogue(b, requantization_of(op), bounds, INT8, len(kernel))
    )


SCHEDULES = (
    Schedule("scalar.depthwise.strips", "depthwise_conv2d", frozenset(), _configs, _build),
)
