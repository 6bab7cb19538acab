"""Trees as tables of pairs: a walk of a fixed number of steps, without a jump.

A node is a word of 32 bits, and the two sides of a branch are a pair of nodes:

    | right from: 16 bits | pair: 8 bits | 4 x column: 8 bits |

The root is node 1 of its tree, and pair p has the nodes 2 p and 2 p + 1. The key of a
column has its 16 bits above 16 ones. A key that is not below the word goes right, so
that the carry of the comparison is the last bit of the next node.

The nodes of the top levels are numbered as in a complete tree, the pair of node n is n,
and a step there does not read it. A leaf above these levels is repeated below itself.
Nodes of the top levels have no ends: the ends of the tree before are there.

All trees of a group take as many steps as the deepest one. A leaf before the last step
is a node that leads to itself. The last step arrives at an end: the place of the leaf's
row, or its value. Pairs of leaves with equal rows are one pair of their tree. Rows
whose values are from 0 to 2^24 - 1 have three bytes for each, here of two outputs:

    | low 16 bits of 0 | low 16 bits of 1 | high 8 bits of 1, of 0 |
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import INT32, UINT16, Array, DType
from firmwright.extensions.tree_ensemble.forest import TreeGroup

STEPS_MAX = 12
"""Number of steps up to which a walk without a jump is worth its steps at leaves."""
LEVELS_MAX = 6
_LEAVES_REPEATED = 1 / 200
"""Number of repeated leaves up to which a level is one of the top, for each branch."""
_PAIRS = 256
_PLACES = 1 << 16
_SPLIT_BITS = 24
_ALWAYS = 0xFFFF, 0
"""The first keys that go right of a node that always goes left, or right."""


_Placed: TypeAlias = tuple[dict[int, int], dict[int, int]]
"""The nodes and ends of a tree by their number."""


class EndForm(Enum):
    """What an end of a tree is: a value, or the number of a row of values.

    The values of a row have 32 bits, or 24 bits, of which the high ones are apart.
    """

    VALUES = "values"
    ROWS = "rows"
    SPLIT_ROWS = "split_rows"

    @property
    def dtype(self) -> DType:
        return INT32 if self is EndForm.VALUES else UINT16


@dataclass(frozen=True, slots=True)
class PairTable:
    """The nodes and ends of some trees; the first node of each has the sizes of both.

    Of the `steps`, the first `levels` do not read pairs. The ends are places in `rows`,
    in units of `end_step` elements as they are stored, or the values themselves if
    `rows` is empty.
    """

    steps: int
    levels: int
    nodes: Array
    ends: Array
    rows: Array

    @property
    def form(self) -> EndForm:
        if not len(self.rows):
            return EndForm.VALUES
        is_narrow = self.rows.min() >= 0 and self.rows.max() < 1 << _SPLIT_BITS
        return EndForm.SPLIT_ROWS if is_narrow else EndForm.ROWS

    @property
    def end_step(self) -> int:
        elements = self.stored_rows.size
        return 1 if elements <= _PLACES else elements // len(self.rows)

    @property
    def stored_ends(self) -> Array:
        """Return the ends as they are in flash."""
        if self.form is EndForm.VALUES or self.end_step != 1:
            return self.ends
        return np.asarray(self.ends * self.stored_rows.shape[1], np.uint16)

    @property
    def size_bytes(self) -> int:
        tables = self.nodes, self.ends, self.stored_rows
        return sum(int(table.nbytes) for table in tables)

    @property
    def stored_rows(self) -> Array:
        """Return the rows as they are in flash."""
        if self.form is not EndForm.SPLIT_ROWS:
            return self.rows
        high = self.rows >> 16
        if high.shape[1] % 2:
            high = np.pad(high, ((0, 0), (0, 1)))
        parts = self.rows & 0xFFFF, high[:, ::2] | high[:, 1::2] << 8
        return np.concatenate(parts, axis=1).astype(np.uint16)


def build_pair_table(group: TreeGroup, thresholds: Array) -> PairTable | None:
    """Return the table of some trees, or None if a tree has too many pairs."""
    depths = group.forest.leaf_depths
    steps = max(depths)
    if steps > STEPS_MAX:
        return None
    levels = _count_top_levels(steps, depths, group.forest.branches)
    placed: list[_Placed] = []
    first = 0
    for tree, size in enumerate(group.forest.sizes.tolist()):
        built = _Tree(group, thresholds, first, first + tree)
        built.add_branch(0, size, 0, 0)
        if (places := built.place(levels, steps)) is None:
            return None
        placed.append(places)
        first += size
    join = partial(_join, placed, steps, levels)
    tables: list[PairTable] = []
    if len(group.rows) <= _PLACES:
        tables.append(join(group.rows, UINT16))
    if len(group.outputs) == 1:
        tables.append(join(np.zeros((0, 1), np.int32), INT32, group.rows[:, 0]))
    return min(tables, key=lambda table: table.size_bytes, default=None)


def _count_top_levels(steps: int, depths: Sequence[int], branches: int) -> int:
    """Return the number of top levels; leaves above are repeated on each up to it."""
    levels = 0
    for count in range(1, min(steps, LEVELS_MAX + 1)):
        repeated = sum(max(count - depth, 0) for depth in depths)
        if repeated <= _LEAVES_REPEATED * branches:
            levels = count
    return levels


def _join(
    trees: Sequence[_Placed],
    steps: int,
    levels: int,
    rows: Array,
    dtype: DType,
    values: Array | None = None,
) -> PairTable:
    nodes: list[int] = []
    before = 2 * _first_pair(levels)
    ends = [0] * before
    for own_nodes, own_ends in trees:
        places = [own_ends.get(at, 0) for at in range(before, max(own_ends) + 1)]
        words = [own_nodes.get(at, 0) for at in range(max(own_nodes) + 1)]
        words[0] = dtype.size_bytes * len(places) << 16 | 4 * len(words)
        nodes += words
        ends += places if values is None else values[places].tolist()
    array = np.array(ends, dtype.np)
    return PairTable(steps, levels, np.array(nodes, np.uint32), array, rows)


def _first_pair(levels: int) -> int:
    """Return the first pair below the top levels; no other has ends."""
    return (1 << levels) // 2


@dataclass(frozen=True, slots=True)
class _Branch:
    """A branch and its sides; its word does not have the pair yet."""

    word: int
    pair: tuple[int, int]
    depth: int


@dataclass(slots=True)
class _Tree:
    """A tree: its branches from the deepest to the root.

    A side is the row of a leaf, or below 0 it is ~ the place of a branch.
    """

    group: TreeGroup
    thresholds: Array
    first_branch: int
    first_leaf: int
    branches: list[_Branch] = field(default_factory=list)

    def add_branch(self, branch: int, size: int, leaf: int, depth: int) -> int:
        """Add a branch after all below it, and return its place."""
        forest, number = self.group.forest, self.first_branch + branch
        left = int(forest.left_counts[number])
        parts = (
            (branch + 1, left, leaf),
            (branch + 1 + left, size - 1 - left, leaf + left + 1),
        )
        sides = []
        for start, branches, before in parts:
            if branches:
                sides.append(~self.add_branch(start, branches, before, depth + 1))
            else:
                row = self.group.row_indices[self.first_leaf + before]
                sides.append(int(row))
        word = (int(self.thresholds[number]) + 1) << 16
        word |= 4 * int(forest.columns[number])
        self.branches.append(_Branch(word, (sides[0], sides[1]), depth))
        return len(self.branches) - 1

    def place(self, levels: int, steps: int) -> _Placed | None:
        """Return the nodes and ends by their number; None if there are too many pairs.

        Pairs with leaves come first, so that few ends are unused.
        """
        nodes, bottom = self._place_top(levels)
        below = [item for item in self.branches if item.depth >= levels]
        pairs = dict.fromkeys(item.pair for item in below if item.depth + 1 < steps)
        used = {number // 2 for number in (*nodes, *bottom)}
        first = _first_pair(levels)
        free = (number for number in range(first, _PAIRS) if number not in used)
        ordered = sorted(pairs, key=lambda pair: max(pair) < 0)
        numbers = dict(zip(ordered, free, strict=False))
        if len(numbers) < len(pairs):
            return None
        sides = {
            2 * number + side: code
            for pair, number in numbers.items()
            for side, code in enumerate(pair)
        }
        explicit = bottom | sides
        ends = {number: code for number, code in explicit.items() if code >= 0}
        deepest = dict.fromkeys(item.pair for item in below if item.depth + 1 == steps)
        last = _place_last(deepest, ends, first)
        if max(last.values(), default=0) >= _PAIRS:
            return None
        for number, code in explicit.items():
            if code >= 0:
                word = _ALWAYS[number % 2] << 16 | number // 2 << 8
            else:
                branch = self.branches[~code]
                places = last if branch.depth + 1 == steps else numbers
                word = branch.word | places[branch.pair] << 8
            nodes[number] = word
        return nodes, ends

    def _place_top(self, levels: int) -> tuple[dict[int, int], dict[int, int]]:
        """Return the words of the top levels and the sides on the level below."""
        words: dict[int, int] = {}
        bottom = {1: ~(len(self.branches) - 1)}
        for _ in range(levels):
            upper, bottom = bottom, {}
            for number, code in upper.items():
                if code >= 0:
                    words[number] = _ALWAYS[0] << 16
                    bottom[2 * number] = code
                else:
                    branch = self.branches[~code]
                    words[number] = branch.word
                    bottom[2 * number], bottom[2 * number + 1] = branch.pair
        return words, bottom


def _place_last(
    pairs: Iterable[tuple[int, int]], ends: dict[int, int], unused: int
) -> dict[tuple[int, int], int]:
    """Add the ends of the last step, and return their pair for each pair of rows.

    If a leaf before the last step has one of the rows, and the end beside it is unused,
    the pair is there. Other pairs are `unused` or later ones.
    """
    halves: dict[tuple[int, int], list[int]] = {}
    for place, row in ends.items():
        if place ^ 1 not in ends:
            halves.setdefault((place % 2, row), []).append(place // 2)
    numbers: dict[tuple[int, int], int] = {}
    for pair in pairs:
        found = [halves[half] for half in enumerate(pair) if halves.get(half)]
        if found:
            numbers[pair] = found[0].pop()
        else:
            while 2 * unused in ends or 2 * unused + 1 in ends:
                unused += 1
            numbers[pair] = unused
        for side, row in enumerate(pair):
            ends[2 * numbers[pair] + side] = row
    return numbers
