"""depthwise_conv2d of large windows on any core: strips (schedules/depthwise_strips.py).

One channel at a time, one product a tap; int8 values are brought to zero as they are loaded, so
that taps outside of the input are worth nothing. For windows of more taps than the registers hold
(depthwise_conv2d.py has those), and for int16 where sums provably have 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import E
from firmwright.ir.tir.nodes import Buffer
from firmwright.ir.tir.schedule import Config, Rule
from firmwright.ops.conv2d import bias_of, requant_of, weights_of
from firmwright.ops.fixed_point import per_tensor
from firmwright.ops.int16x8 import accumulator_dtype
from firmwright.ops.kernel import Kernel
from firmwright.schedules import depthwise_strips
from firmwright.schedules.epilogue import accumulator_bounds, make_epilogue

_FEW_TAPS = 12


def _configs(op: OpCall) -> Sequence[Config]:
    x, (_, height, width, _) = op.input(0), op.input(1).shape
    large = x.dtype == INT8 and height * width > _FEW_TAPS
    provable = x.dtype == INT16 and accumulator_dtype(op, 3) == INT32
    return depthwise_strips.configs(op) if large or provable else ()


@dataclass(frozen=True, slots=True)
class _Singles:
    """[row, column, channel] and [n, y, x, channel]."""

    taps: Buffer
    x: Buffer
    zero_point: int

    @property
    def channels(self) -> int:
        return 1

    def weights(self, b: Kernel, ky: E, kx: int, block: E) -> E:
        return b.load_i32(self.taps, [ky, kx, block])

    def value(self, b: Kernel, at: Sequence[E], block: E) -> E:
        value = b.load_i32(self.x, [*at, block])
        return value - self.zero_point if self.zero_point else value

    def product(self, total: E, value: E, weights: E, channel: int) -> E:
        return total + value * weights


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    kernel, kind = weights_of(op)[0], op.input(0)
    bias = bias_of(op, "int32")
    zero_point = per_tensor(kind).zero_point
    ends = (kind.dtype.min - zero_point, kind.dtype.max - zero_point)
    bounds = accumulator_bounds(bias, np.moveaxis(kernel, 2, 0), *ends)
    taps = _Singles(b.constant("weights", kernel, INT8), b.input(0), zero_point)
    biases = b.constant("bias", bias, INT32)
    epilogue = make_epilogue(b, requant_of(op), bounds, op.output.dtype, kernel.shape[2])
    depthwise_strips.build(op, config, b, taps, (biases, epilogue))


RULES = (Rule("scalar.depthwise.strips", "depthwise_conv2d", frozenset(), _configs, _build),)
