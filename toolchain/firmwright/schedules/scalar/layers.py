"""What the rules need to know of an int8 or float32 layer with weights, in one form.

int8: sums are int32 and start from the bias, in which the input's zero point is folded; they end
in the requantise step. float32: sums start from nothing and the bias comes last, which is the
order of the reference kernels (docs/numerics.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, DType
from firmwright.ir.graph.opdef import Array, OpCall
from firmwright.ir.tir.builder import E, expr
from firmwright.ir.tir.nodes import Buffer
from firmwright.ops.conv2d import bias_of
from firmwright.ops.fixed_point import Requant, activated, per_tensor
from firmwright.ops.kernel import Kernel
from firmwright.schedules.epilogue import Finish, accumulator_bounds, make_epilogue

DTYPES = (INT8, FLOAT32)


class Ending(Protocol):
    """From the sum of an output channel to its element."""

    def channel(self, b: Kernel, index: E) -> AbstractContextManager[Finish]:
        """Binds the parameters of channel `index`."""


@dataclass(frozen=True, slots=True)
class Layer:
    """`zero_point` is what stands for 0 in the input; `bias` is None where sums start from 0.

    `factors` [channel] are what the weights must be multiplied with.
    """

    dtype: DType
    sum_dtype: DType
    zero_point: int
    bias: Buffer | None
    ending: Ending
    factors: Array

    def start(self, b: Kernel, index: E) -> E:
        """What the sum of channel `index` starts from."""
        if self.bias is None:
            return E(expr(0.0, FLOAT32))
        return b.load(self.bias, [index])


def make_layer(
    b: Kernel,
    op: OpCall,
    weights: Array,
    params: Requant | None,
    channels: Sequence[int] | None = None,
    *,
    may_bake: bool = False,
) -> Layer:
    """The layer of `op` with `weights` as [output channels, taps]; `params` only for int8.

    With `channels` its rows are these alone, and `params` theirs. Where the schedule `may_bake`,
    the left shift of the requantise step goes into weights of int16.
    """
    chosen = list(range(len(weights)) if channels is None else channels)
    if params is None:
        bias = b.constant("bias", bias_of(op, "float32"), FLOAT32)
        ending = _FloatEnding(bias, op.str_attr("activation"))
        return Layer(FLOAT32, FLOAT32, 0, None, ending, np.ones(len(chosen), np.int64))
    zero_point = per_tensor(op.input(0)).zero_point
    wide = weights[chosen].astype(np.int64)
    folded = bias_of(op, "int32").astype(np.int64)[chosen] - zero_point * wide.sum(axis=1)
    bounds = accumulator_bounds(folded, wide, INT8.min, INT8.max)
    bake = wide if may_bake else None
    epilogue = make_epilogue(b, params, bounds, INT8, len(wide), bake)
    factors = np.array(epilogue.factors, np.int64)
    bias = b.constant("bias", folded * factors, INT32)
    return Layer(INT8, INT32, zero_point, bias, epilogue, factors)


@dataclass(frozen=True, slots=True)
class _FloatEnding:
    bias: Buffer
    activation: str

    @contextmanager
    def channel(self, b: Kernel, index: E) -> Iterator[Finish]:
        with b.let("bias_here", b.load(self.bias, [index])) as bias:
            yield lambda total: activated(total + bias, self.activation)
