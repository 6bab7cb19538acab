"""Tables of pairs of many trees: more values than a place of 16 bits can number."""

from __future__ import annotations

import numpy as np

from firmwright.extensions.tree_ensemble.forest import Forest, TreeGroup
from firmwright.extensions.tree_ensemble.pair_table import EndForm, build_pair_table

LEVELS, TREES = 8, 257
LEAVES = TREES << LEVELS


def left_counts(levels: int) -> list[int]:
    """Return the branches on the left of each branch of a complete tree."""
    if levels == 0:
        return []
    side = left_counts(levels - 1)
    return [len(side), *side, *side]


def group_of(values: int, outputs: int) -> TreeGroup:
    """Return complete trees with different leaves, up to a number of `values`."""
    lefts = np.array(left_counts(LEVELS) * TREES)
    forest = Forest(
        columns=np.zeros(len(lefts), np.int64),
        features=((0, False),),
        thresholds=np.zeros(len(lefts), np.float32),
        left_counts=lefts,
        sizes=np.full(TREES, len(lefts) // TREES),
        leaves=np.zeros((LEAVES, outputs), np.int32),
    )
    rows = np.arange(values * outputs, dtype=np.int32).reshape(values, outputs)
    return TreeGroup(tuple(range(outputs)), forest, rows, np.arange(LEAVES) % values)


def test_more_values_than_places_are_the_ends_themselves() -> None:
    for values, outputs, form in (
        (LEAVES, 1, EndForm.VALUES),
        (LEAVES, 2, None),
        (100, 2, EndForm.SPLIT_ROWS),
    ):
        group = group_of(values, outputs)
        table = build_pair_table(group, np.zeros(group.forest.branches, np.int64))
        assert (None if table is None else table.form) is form
