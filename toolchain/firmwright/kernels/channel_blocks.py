"""Channels in blocks of the size of a micro-kernel.

If the size does not divide the number of channels, the last block overlaps the one
before it:

    | 0 1 2 3 | 4 5 6 7 |
                  | 6 7 8 9 |
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.rounding import divide_up
from firmwright.ir.tir.builder import ArithExpr, minimum

_VECTOR = 4


@dataclass(frozen=True, slots=True)
class ChannelBlocks:
    """Blocks of `size` channels, of which the last ends at the last channel.

    If there are fewer channels than `size`, a block has lanes without a channel.
    """

    channels: int
    size: int

    @property
    def count(self) -> int:
        return divide_up(self.channels, self.size)

    @property
    def stored(self) -> int:
        """The channels of a block whose outputs are stored."""
        return min(self.channels, self.size)

    @property
    def last(self) -> int:
        """The first channel of the last block."""
        return self.channels - self.stored

    def first(self, block: ArithExpr) -> ArithExpr:
        """Return the first channel of a block."""
        start = block * self.size
        if self.channels % self.size == 0:
            return start
        return minimum(start, self.last)

    def _lanes(self, order: Sequence[int]) -> Array:
        """Return the channels [block, lane]; some are none if there are too few."""
        starts = np.minimum(np.arange(self.count) * self.size, self.last)
        lanes: Array = starts[:, None] + np.array(order)
        return lanes

    def pack(self, values: Array, order: Sequence[int] | None = None) -> Array:
        """Pack values [..., channel] as [block, ..., lane].

        `order` is the channel within its block that each lane holds. Lanes without a
        channel repeat the last one.
        """
        lanes = self._lanes(range(self.size) if order is None else order)
        packed = values[..., np.minimum(lanes, self.channels - 1)]
        return np.ascontiguousarray(np.moveaxis(packed, -2, 0))

    def rows(self, values: Array) -> Array:
        """Return values [channel, ...] of all lanes of the blocks, in their order.

        Lanes without a channel have zeros.
        """
        missing = self.size - self.stored
        padded = np.pad(values, [(0, missing), *[(0, 0)] * (values.ndim - 1)])
        return padded[self._lanes(range(self.size)).reshape(-1)]

    def table(self, *parameters: Array, small: Array | None = None) -> Array:
        """Return parameters [channel] as [block, parameter]: a row for each block.

        Of every four channels, it has the values of the first parameter, then those of
        the next. Those of `small` are the bytes of a word:

            | a0 | a1 | a2 | a3 | b0 | b1 | b2 | b3 | s3 s2 s1 s0 |
        """
        rows = self.rows(np.stack(parameters, axis=1))
        vectors = rows.reshape(-1, _VECTOR, len(parameters)).swapaxes(1, 2)
        words = vectors.reshape(len(vectors), -1)
        if small is not None:
            bytes_of_words = self.rows(small).astype("<i1").reshape(-1, _VECTOR)
            last = bytes_of_words.view("<i4").astype(words.dtype)
            words = np.concatenate([words, last], axis=1)
        return np.ascontiguousarray(words).reshape(self.count, -1)
