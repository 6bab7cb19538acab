"""The layout of weights that dot products of Helium read."""

from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, Array, DType
from firmwright.base.rounding import round_up
from firmwright.kernels.contract import fits_element
from firmwright.kernels.mve.dot_products import Weights

_INT4_SUM_BITS = 28
"""Sixteen times a sum must fit 32 bits."""


@dataclass(frozen=True, slots=True)
class WeightRows:
    """The layout of blocks of `rows` channels: a vector of weights of each, in turn.

        | step 0: taps 0 to 15 of row 0, of row 1, ... | step 1: taps 16 to 31 ...

    Taps are padded with zeros to whole vectors. With `INT4`, a byte holds the weights
    of two rows, 16 odd + even.
    """

    rows: int
    weights: Weights = Weights.INT8

    @property
    def element(self) -> DType:
        return INT8

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.rows,)

    @property
    def taps_per_step(self) -> int:
        return self.weights.width

    @property
    def step_bytes(self) -> int:
        """The bytes of a step of a block."""
        size = self.rows * self.taps_per_step
        return size // 2 if self.weights is Weights.INT4 else size

    def pack(self, weights: Array) -> Array:
        """Return the bytes of whole blocks as [block, step, row or two, tap]."""
        return self._values(weights).astype(np.int8)

    def _values(self, weights: Array) -> Array:
        width = self.taps_per_step
        padded = np.pad(
            weights.astype(np.int16), [(0, 0), (0, -weights.shape[1] % width)]
        )
        blocks = padded.reshape(len(weights) // self.rows, self.rows, -1, width)
        steps = blocks.swapaxes(1, 2)
        if self.weights is Weights.INT4:
            steps = 16 * steps[:, :, 1::2] + steps[:, :, ::2]
        return np.ascontiguousarray(steps)

    def unpack(self, packed: Array, channels: int) -> Array:
        """Return [channel, tap], of taps that are padded to whole vectors."""
        blocks = [self.unpack_block(block.reshape(-1)) for block in packed]
        return np.concatenate(blocks)

    def unpack_block(self, packed: Array) -> Array:
        """Return int64 [row, tap, ...] of the bytes of a block, [byte, ...]."""
        stored = self.step_bytes // self.taps_per_step
        steps = np.asarray(packed, np.int64)
        more = steps.shape[1:]
        steps = steps.reshape(-1, stored, self.taps_per_step, *more)
        rows = steps.swapaxes(0, 1).reshape(stored, -1, *more)
        if self.weights is not Weights.INT4:
            return rows
        even = (rows + 8) % 16 - 8
        both = np.stack([even, (rows - even) >> 4], axis=1)
        return both.reshape(self.rows, *rows.shape[1:])

    def do_weights_fit(self, weights: Array) -> bool:
        if (
            self.weights is Weights.INT4
            and not -8 <= weights.min() <= weights.max() < 8
        ):
            return False
        return fits_element(self._values(weights), self.element)

    def do_sums_fit(self, low: Array, high: Array) -> bool:
        """Whether sums fit: those of int4 are multiplied by 16, others wrap."""
        if self.weights is not Weights.INT4:
            return True
        limit = 1 << (_INT4_SUM_BITS - 1)
        return bool(-limit <= low.min() and high.max() < limit)


def column_values(weights: Weights, column: Array) -> Array:
    """Return the int64 values of a column; those of int16 are in memory as bytes."""
    values = np.asarray(column, np.int64)
    if weights is not Weights.INT16:
        return values
    return (values[0::2] & 0xFF) | (values[1::2] << 8)


def padded_taps(taps: int) -> int:
    """Return the taps of a column that is padded to whole vectors of int8."""
    return round_up(taps, Weights.INT8.width)
