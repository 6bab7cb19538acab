"""Reshapes of transposed tensors, as reshapes of their source.

Axis i of the value is axis perm[i] of the source. A group is a minimal run of the
value's axes with as many elements as a run of axes of the new shape; axes of extent one
may be anywhere:

    value      2   6   4   5        groups: (2 6) and (4 5), which become (3 4) and (20)
               |---|   |---|
    reshaped   3   4   20

The source can be reshaped instead if the axes of each group are adjacent and in order
there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Perm: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AxisGroup:
    """Axes of a shape, and the axes of its reshaped form with the same elements."""

    before: range
    after: range


@dataclass(frozen=True, slots=True)
class SourceReshape:
    """The shape to reshape the source to, and the permutation to the result."""

    shape: tuple[int, ...]
    perm: Perm


def group_axes(before: Sequence[int], after: Sequence[int]) -> list[AxisGroup]:
    """Return the groups of two shapes with the same number of elements."""
    groups: list[AxisGroup] = []
    i = j = 0
    while i < len(before) and j < len(after):
        first_i, first_j = i, j
        i, j = i + 1, j + 1
        elements, new_elements = before[first_i], after[first_j]
        while elements != new_elements:
            if elements < new_elements:
                elements *= before[i]
                i += 1
            else:
                new_elements *= after[j]
                j += 1
        groups.append(AxisGroup(range(first_i, i), range(first_j, j)))
    # The remaining axes have one element.
    if groups and (i < len(before) or j < len(after)):
        last = groups[-1]
        axes = range(last.before.start, len(before))
        new_axes = range(last.after.start, len(after))
        groups[-1] = AxisGroup(axes, new_axes)
    return groups


def reshape_before_transpose(
    source: Sequence[int], perm: Perm, after: Sequence[int]
) -> SourceReshape | None:
    """Return the reshape of the source for a reshape of the value to the shape `after`.

    Returns None if the axes of a group are not adjacent and in order in the source.
    """
    wide = [axis for axis, extent in enumerate(source) if extent > 1]
    placed: list[tuple[int, range]] = []
    for group in group_axes([source[axis] for axis in perm], after):
        places: list[int] = []
        for axis in group.before:
            if perm[axis] in wide:
                places.append(wide.index(perm[axis]))
        if places and places != list(range(places[0], places[0] + len(places))):
            return None
        placed.append((places[0] if places else -1, group.after))
    placed.sort(key=lambda item: item[0])
    order: list[int] = []
    for _, axes in placed:
        order += axes
    order += [axis for axis in range(len(after)) if axis not in order]
    shape = tuple(after[axis] for axis in order)
    return SourceReshape(shape, tuple(map(order.index, range(len(after)))))


def grouping_permutation(
    source: Sequence[int], perm: Perm, after: Sequence[int]
) -> Perm:
    """Return the permutation of the source axes that makes every group adjacent."""
    placed: list[tuple[int, list[int]]] = []
    for group in group_axes([source[axis] for axis in perm], after):
        own = [perm[axis] for axis in group.before]
        wide = [axis for axis in own if source[axis] > 1]
        placed.append((min(wide or own), own))
    placed.sort()
    order: list[int] = []
    for _, axes in placed:
        order += axes
    return tuple(order)
