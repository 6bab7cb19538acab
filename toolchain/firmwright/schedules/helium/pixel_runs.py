"""Micro-kernels of runs of pixels on Helium: their operands and what they compute.

The columns of a run (column_runs.py) are `step` bytes apart, and the outputs of its
`count` pixels `channels` elements. A call computes a block of channels of all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.dtypes import INT8, Array
from firmwright.ir.tir.intrinsic import Operand, immediates, pointers
from firmwright.kernels.contract import sums_of_products
from firmwright.kernels.mve.dot_products import Weights
from firmwright.kernels.mve.weight_layout import WeightRows, column_values
from firmwright.schedules.helium.vector_ending import VECTOR, SumVector, VectorEnding

SUMS = (SumVector("total", "y"),)


@dataclass(frozen=True, slots=True)
class PixelRuns:
    """Micro-kernels of four channels: the layout of weights, and how sums end."""

    layout: WeightRows
    ending: VectorEnding
    weights: Weights = Weights.INT8

    def operands(self, size: int, weights: str = "w") -> tuple[Operand, ...]:
        """Return the operands: `size` bytes of weights, under this name, and others."""
        tables = self.ending.tables
        ends = self.ending.operands(SUMS)
        y = replace(ends[len(tables)], access="rw")
        return (
            *pointers(INT8, **{weights: size, "x": 1}),
            *ends[: len(tables)],
            y,
            *ends[len(tables) + 1 :],
            *immediates("step", "channels", "count", "taps"),
        )

    @property
    def names(self) -> Sequence[str]:
        return tuple(operand.name for operand in self.operands(0))

    def meaning(self, *args: Array) -> Array:
        """Return the outputs; those between are as they were."""
        given = dict(zip(self.names, args, strict=True))
        taps, step = int(given["taps"]), int(given["step"])
        weights = self.layout.unpack_block(given["w"])
        y, x = np.array(given["y"]), np.asarray(given["x"])
        for pixel in range(int(given["count"])):
            bytes_of_column = x[pixel * step : pixel * step + taps]
            column = column_values(self.weights, bytes_of_column)[:, None]
            used = weights[:, : len(column)].swapaxes(0, 1)
            sums = np.stack(sums_of_products(used, column, [0] * VECTOR))
            outputs = self.ending.results(SUMS, [sums], given)
            at = pixel * int(given["channels"])
            y[at : at + len(outputs)] = outputs
        return y
