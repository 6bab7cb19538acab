"""Reshapes of transposed tensors as reshapes of their source.

Axis i of the value is axis perm[i] of the source. A group is a minimal run of the value's axes with
as many elements as a run of axes of the new shape; axes of extent one may be anywhere.
"""

import math
from collections.abc import Sequence

Perm = tuple[int, ...]


def group_axes(before: Sequence[int], after: Sequence[int]) -> list[tuple[range, range]]:
    groups: list[tuple[range, range]] = []
    i = j = 0
    while i < len(before) and j < len(after):
        first_i, first_j = i, j
        i, j = i + 1, j + 1
        while (a := math.prod(before[first_i:i])) != (b := math.prod(after[first_j:j])):
            i, j = (i + 1, j) if a < b else (i, j + 1)
        groups.append((range(first_i, i), range(first_j, j)))
    # The remaining axes have one element.
    if groups and (i < len(before) or j < len(after)):
        axes, new = groups[-1]
        groups[-1] = (range(axes.start, len(before)), range(new.start, len(after)))
    return groups


def reshape_before_transpose(
    source: Sequence[int], perm: Perm, after: Sequence[int]
) -> tuple[tuple[int, ...], Perm] | None:
    """Return (shape, perm): a reshape of the source and the permutation that yields the result.

    Returns None if the axes of a group are not adjacent and in order in the source.
    """
    wide = [axis for axis, extent in enumerate(source) if extent > 1]
    placed: list[tuple[int, range]] = []
    for axes, new in group_axes([source[axis] for axis in perm], after):
        places = [wide.index(perm[axis]) for axis in axes if perm[axis] in wide]
        if places and places != list(range(places[0], places[0] + len(places))):
            return None
        placed.append((places[0] if places else -1, new))
    order = [axis for _, new in sorted(placed, key=lambda item: item[0]) for axis in new]
    order += [axis for axis in range(len(after)) if axis not in order]
    return tuple(after[axis] for axis in order), tuple(order.index(k) for k in range(len(after)))


def grouping_permutation(source: Sequence[int], perm: Perm, after: Sequence[int]) -> Perm:
    """Return the permutation of the source axes that makes every group adjacent."""
    order = []
    for axes, _ in group_axes([source[axis] for axis in perm], after):
        own = [perm[axis] for axis in axes]
        wide = [axis for axis in own if source[axis] > 1]
        order.append((min(wide or own), own))
    return tuple(axis for _, own in sorted(order) for axis in own)
