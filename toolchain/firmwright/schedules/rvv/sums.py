"""32-bit sums of the products of constant weights and a vector, by RISC-V vectors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from firmwright.base.dtypes import INT8, INT32, Array, DType
from firmwright.ir import tir
from firmwright.ops.kernel import Kernel
from firmwright.ops.lstm import Index
from firmwright.schedules.rvv.conv2d_fully_connected import choose_loop
from firmwright.schedules.rvv.endings import SUMS


@dataclass(frozen=True, slots=True)
class VectorSums:
    """A product of weights [channel, column] that adds a bias to each channel."""

    name: str
    weights: tir.Buffer
    bias: tir.Buffer

    @classmethod
    def plan(cls, b: Kernel, flat: Array, bias: Array, dtype: DType) -> VectorSums:
        """Plan the product with vectors of `dtype`; sums must fit 32 bits."""
        loop = choose_loop(SUMS[dtype], flat, 1, 1)
        weights = b.constant("weights", flat.T, INT8)
        return cls(loop.name, weights, b.constant("bias", bias, INT32))

    def emit(self, b: Kernel, x: tir.Buffer, at: Index, y: tir.Buffer) -> None:
        """Multiply row `at` of `x`; `y` has one sum for each channel."""
        columns, channels = self.weights.shape
        first = reduce(lambda total, part: total * x.shape[1] + part, at) * columns
        b.evaluate(
            self.name,
            [
                b.pointer(self.weights, 0, self.weights.elements),
                b.pointer(x, first, columns),
                b.pointer(self.bias, 0, channels),
                b.pointer(y, 0, channels, "w"),
                *(columns, 1, columns, columns, 1, channels),
            ],
        )
