"""Channels in blocks of the size of a micro-kernel.

If the size does not divide the number of channels, the last block overlaps the one
before it:

    | 0 1 2 3 | 4 5 6 7 |
                  | 6 7 8 9 |
"""

from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.rounding import divide_up

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

    def rows(self, values: Array) -> Array:
        """Return values [channel, ...] of all lanes of the blocks, in their order.

        Lanes without a channel have zeros.
        """
        missing = self.size - self.stored
        padded = np.pad(values, [(0, missing), *[(0, 0)] * (values.ndim - 1)])
        starts = np.minimum(np.arange(self.count) * self.size, self.last)
        lanes = starts[:, None] + np.arange(self.size)
        return padded[lanes.reshape(-1)]

    def table(self, *parameters: Array) -> Array:
        """Return parameters [channel] as [block, parameter]: a row for each block.

        Of every four channels, it has the values of the first parameter, then those of
        the next.
        """
        rows = self.rows(np.stack(parameters, axis=1))
        vectors = rows.reshape(-1, _VECTOR, len(parameters)).swapaxes(1, 2)
        return np.ascontiguousarray(vectors).reshape(self.count, -1)
