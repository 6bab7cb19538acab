"""Reshapes of transposed tensors: which axes a reshape joins and splits, and where they lie.

In: the shape of a source, the permutation that makes a value of it (axis i of the value is axis
perm[i] of the source), and the shape that the value is reshaped to. Out: how the source can be
reshaped instead. A group is the fewest neighbouring axes of the value whose elements are those of
neighbouring axes of the new shape. Axes of one element lie anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Perm = tuple[int, ...]


def group_axes(before: Sequence[int], after: Sequence[int]) -> list[tuple[range, range]]:
    """The axes of one shape and those of the other that hold the same elements, in order."""
    found: list[tuple[range, range]] = []
    i = j = 0
    while i < len(before) and j < len(after):
        first_i, first_j = i, j
        i, j = i + 1, j + 1
        while (a := math.prod(before[first_i:i])) != (b := math.prod(after[first_j:j])):
            i, j = (i + 1, j) if a < b else (i, j + 1)
        found.append((range(first_i, i), range(first_j, j)))
    # What is left of either has one element.
    if found and (i < len(before) or j < len(after)):
        axes, new = found[-1]
        found[-1] = (range(axes.start, len(before)), range(new.start, len(after)))
    return found


def reshape_before_transpose(
    source: Sequence[int], perm: Perm, after: Sequence[int]
) -> tuple[tuple[int, ...], Perm] | None:
    """(shape, perm): the source's new shape, of which `perm` makes the value in its own.

    None where a group's axes are not side by side in the source, in their order.
    """
    places = _places(source)
    found: list[tuple[int, range]] = []
    for axes, new in group_axes([source[axis] for axis in perm], after):
        lie = [places[perm[axis]] for axis in axes if perm[axis] in places]
        if lie != list(range(lie[0], lie[0] + len(lie))) if lie else False:
            return None
        found.append((lie[0] if lie else -1, new))
    order = [axis for _, new in sorted(found, key=lambda item: item[0]) for axis in new]
    order += [axis for axis in range(len(after)) if axis not in order]
    return tuple(after[axis] for axis in order), tuple(order.index(k) for k in range(len(after)))


def grouping_permutation(source: Sequence[int], perm: Perm, after: Sequence[int]) -> Perm:
    """The order of the source's axes in which every group's lie side by side."""
    found = []
    for axes, _ in group_axes([source[axis] for axis in perm], after):
        own = [perm[axis] for axis in axes]
        wide = [axis for axis in own if source[axis] > 1]
        found.append((min(wide or own), own))
    return tuple(axis for _, own in sorted(found) for axis in own)


def _places(shape: Sequence[int]) -> dict[int, int]:
    """The places of axes among those of more than one element."""
    return {axis: k for k, axis in enumerate(a for a, n in enumerate(shape) if n > 1)}
