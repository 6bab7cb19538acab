"""Tables of the states of a beam search, of their valleys, and of the next steps.

Each table has one array for each property, with an element or a row for each entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Beam:
    """States, one a row.

    `top` (minus the height, so at most 0) and `slack` have an element for each column,
    `remaining` for each buffer of the packing. `area` is the part of the total area
    that is placed.
    """

    top: NDArray[np.int32]
    slack: NDArray[np.int32]
    remaining: NDArray[np.bool_]
    area: Floats

    def rows(self, chosen: Ints) -> Beam:
        """Return copies of the chosen states."""
        return Beam(
            top=self.top[chosen],
            slack=self.slack[chosen],
            remaining=self.remaining[chosen],
            area=self.area[chosen],
        )


@dataclass(frozen=True, slots=True)
class Valleys:
    """Valleys of skylines, one an element: the state's row and columns [first, end).

    `depth` is the height of the lower rim above the bottom.
    """

    row: Ints
    first: Ints
    end: Ints
    depth: Ints

    def at(self, chosen: Ints) -> Valleys:
        """Return the chosen valleys."""
        return Valleys(
            row=self.row[chosen],
            first=self.first[chosen],
            end=self.end[chosen],
            depth=self.depth[chosen],
        )


@dataclass(frozen=True, slots=True)
class Fitting:
    """For each valley, the buffers that begin or end with it, and whether each fits.

    `left` has the buffers that begin where the valley begins, filled up with the number
    of the empty buffer; `is_left` tells which of them remain and are narrow enough.
    `right` and `is_right` are the same for the other end.
    """

    left: Ints
    is_left: NDArray[np.bool_]
    right: Ints
    is_right: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Steps:
    """Successors of states: parent row, placed buffer, column and depth of waste.

    The depth is 0 for a real buffer; for the empty buffer, the column is wasted by the
    depth.
    """

    parents: Ints
    buffers: Ints
    columns: Ints
    depths: Ints

    def at(self, chosen: Ints) -> Steps:
        """Return the chosen steps."""
        return Steps(
            parents=self.parents[chosen],
            buffers=self.buffers[chosen],
            columns=self.columns[chosen],
            depths=self.depths[chosen],
        )
