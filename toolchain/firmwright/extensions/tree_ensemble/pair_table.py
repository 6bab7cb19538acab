"""Trees as tables of pairs: a walk of a fixed number of steps, without a jump.

A node is a word of 32 bits, and the two sides of a branch are a pair of nodes:

    | right from: 16 bits | pair: 8 bits | 4 x column: 8 bits |

The root is node 1 of its tree, and pair p has the nodes 2 p and 2 p + 1. The key of a
column has its 16 bits above 16 ones. A key that is not below the word goes right, so
that the carry of the comparison is the last bit of the next node.

All trees of a group take as many steps as the deepest one. A leaf before the last step
is a node that leads to itself. The last step arrives at an end: the row of the leaf, or
its value. Pairs of leaves with equal rows are one pair of their tree. Rows whose values
are from 0 to 2^24 - 1 have three bytes for each, here of two outputs:

    | low 16 bits of 0 | low 16 bits of 1 | high 8 bits of 1, of 0 |
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import INT32, UINT16, UINT32, Array, DType
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.extensions.tree_ensemble.forest import TreeGroup
from firmwright.ir import tir
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, immediates, pointers
from firmwright.ops.kernel import Kernel

STEPS_MAX = 12
"""Number of steps up to which a walk without a jump is worth its steps at leaves."""
_NAMED_SUMS_MAX = 4
_PAIRS = 256
_SPLIT_BITS = 24
_STEP_INSTRUCTIONS = {"thumb2": 6.0, "thumb1": 5.5, "portable": 6.5}
"""Instructions of a step where one of node_table.py is taken to have nine.

That has nine on Armv7-M, but 13 on other cores, where one of pairs has eight or nine.
"""
_TREE_INSTRUCTIONS = 9
_ALWAYS_LEFT, _ALWAYS_RIGHT = 0xFFFF, 0


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

    The ends are places of `rows`, or the values themselves if `rows` is empty.
    """

    steps: int
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
    steps = group.forest.depth
    if steps > STEPS_MAX:
        return None
    placed: list[_Placed] = []
    first = 0
    for tree, size in enumerate(group.forest.sizes.tolist()):
        built = _Tree(group, thresholds, first, first + tree, steps)
        built.add_branch(0, size, 0, 0)
        if (places := built.place()) is None:
            return None
        placed.append(places)
        first += size
    shared = _join(placed, steps, group.rows, UINT16)
    if len(group.outputs) == 1:
        own = _join(placed, steps, np.zeros((0, 1), np.int32), INT32, group.rows[:, 0])
        return min(shared, own, key=lambda table: table.size_bytes)
    return shared if len(group.rows) <= 1 << 16 else None


def _join(
    trees: Sequence[_Placed],
    steps: int,
    rows: Array,
    dtype: DType,
    values: Array | None = None,
) -> PairTable:
    nodes: list[int] = []
    ends: list[int] = []
    for own_nodes, own_ends in trees:
        places = [own_ends.get(at, 0) for at in range(max(own_ends) + 1)]
        words = [own_nodes.get(at, 0) for at in range(max(own_nodes) + 1)]
        words[0] = dtype.size_bytes * len(places) << 16 | 4 * len(words)
        nodes += words
        ends += places if values is None else values[places].tolist()
    array = np.array(ends, dtype.np)
    return PairTable(steps, np.array(nodes, np.uint32), array, rows)


@dataclass(frozen=True, slots=True)
class _Branch:
    """A branch without its pair: that of `pairs`, or of `last` after the last step."""

    word: int
    pair: tuple[int, int]
    is_last: bool


@dataclass(slots=True)
class _Tree:
    """A tree: its pairs of sides, and its branches from the deepest to the root.

    A side is the row of a leaf, or below 0 it is ~ the place of a branch. `last` has
    the distinct pairs of rows after the last step.
    """

    group: TreeGroup
    thresholds: Array
    first_branch: int
    first_leaf: int
    steps: int
    branches: list[_Branch] = field(default_factory=list)
    pairs: dict[tuple[int, int], None] = field(default_factory=dict)
    last: dict[tuple[int, int], None] = field(default_factory=dict)

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
        pair = sides[0], sides[1]
        is_last = depth + 1 == self.steps
        (self.last if is_last else self.pairs)[pair] = None
        word = (int(self.thresholds[number]) + 1) << 16
        word |= 4 * int(forest.columns[number])
        self.branches.append(_Branch(word, pair, is_last))
        return len(self.branches) - 1

    def place(self) -> _Placed | None:
        """Return the nodes and ends by their number; None if there are too many pairs.

        Pairs with leaves come first, so that few ends are unused.
        """
        ordered = sorted(self.pairs, key=lambda pair: max(pair) < 0)
        numbers = {pair: number for number, pair in enumerate(ordered, 1)}
        ends: dict[int, int] = {}
        for pair, number in numbers.items():
            for side, row in enumerate(pair):
                if row >= 0:
                    ends[2 * number + side] = row
        last = _place_last(self.last, ends)
        if max((*numbers.values(), *last.values())) >= _PAIRS:
            return None

        def word(branch: _Branch) -> int:
            return branch.word | (last if branch.is_last else numbers)[branch.pair] << 8

        nodes = {1: word(self.branches[-1])}
        for pair, number in numbers.items():
            for side, code in enumerate(pair):
                leaf = (_ALWAYS_LEFT, _ALWAYS_RIGHT)[side] << 16 | number << 8
                nodes[2 * number + side] = (
                    leaf if code >= 0 else word(self.branches[~code])
                )
        return nodes, ends


def _place_last(
    pairs: Iterable[tuple[int, int]], ends: dict[int, int]
) -> dict[tuple[int, int], int]:
    """Add the ends of the last step, and return their pair for each pair of rows.

    If a leaf before the last step has one of the rows, and the end beside it is unused,
    the pair is there.
    """
    halves: dict[tuple[int, int], list[int]] = {}
    for place, row in ends.items():
        if place ^ 1 not in ends:
            halves.setdefault((place % 2, row), []).append(place // 2)
    numbers: dict[tuple[int, int], int] = {}
    unused = 0
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


def walk_pairs(
    b: Kernel,
    table: PairTable,
    group: TreeGroup,
    keys: tir.Buffer,
    sums: tir.Buffer,
    isa: str,
) -> None:
    """Add the row of the leaf that each tree of a group reaches to the sums."""
    form = table.form
    nodes = b.constant("nodes", table.nodes, UINT32)
    ends = b.constant("ends", table.ends, form.dtype)
    whole = [nodes, ends, keys]
    if form is EndForm.ROWS:
        whole.append(b.constant("leaves", table.rows, INT32))
    elif form is EndForm.SPLIT_ROWS:
        whole.append(b.constant("leaves", table.stored_rows, UINT16))
    outputs = len(group.outputs)
    places = [b.pointer(item, 0, item.span_elements) for item in whole]
    places.append(b.pointer(sums, group.outputs[0], outputs, "rw"))
    walk = _Walk(isa, table.steps, form, min(outputs, _NAMED_SUMS_MAX + 1))
    b.evaluate(walk.name, [*places, len(group.forest.sizes), outputs])


@dataclass(frozen=True, slots=True)
class _Walk:
    """A walk of trees, of a number of steps, by the instructions of `isa`.

    More than `_NAMED_SUMS_MAX` sums are not kept in variables.
    """

    isa: str
    steps: int
    ends: EndForm
    sums: int

    @property
    def name(self) -> str:
        named = self.sums if self.sums <= _NAMED_SUMS_MAX else "n"
        return f"walk_pairs_{self.isa}_{self.steps}_{self.ends.value}_{named}"

    def meaning(self, nodes: Array, ends: Array, keys: Array, *rest: Array) -> Array:
        """Compute the new sums, as the C of the walk does."""
        *rows, sums, trees, outputs = rest
        count, totals = int(np.max(outputs)), np.array(sums)
        values = (rows[0] if rows else ends).astype(np.int32)
        if self.ends is EndForm.SPLIT_ROWS:
            words = values.reshape(-1, count + (count + 1) // 2)
            high = np.stack([words[:, count:] & 255, words[:, count:] >> 8], axis=2)
            high = high.reshape(len(words), -1)[:, :count]
            values = words[:, :count] + (high << 16)
        values = values.reshape(-1, count)
        branches, first, first_end = nodes.reshape(-1).tolist(), 0, 0
        for _ in range(int(np.max(trees))):
            at = 1
            for _ in range(self.steps):
                word = branches[first + at]
                key = int(keys.reshape(-1)[(word & 255) // 4])
                at = 2 * (word >> 8 & 255) + int(key >= word)
            end = first_end + at
            row = values[int(ends.reshape(-1)[end]) if rows else end]
            totals = totals + row.reshape(totals.shape)
            sizes = branches[first]
            first += (sizes & 0xFFFF) // 4
            first_end += (sizes >> 16) // ends.dtype.itemsize
        return totals

    def count(self, args: Sequence[int]) -> int:
        """Return the instructions of the walk."""
        trees = max(args[-2], 1)
        steps = self.steps * _STEP_INSTRUCTIONS[self.isa]
        rows = 0 if self.ends is EndForm.VALUES else 2
        each = 4 if self.ends is EndForm.SPLIT_ROWS else 2
        return int((steps + _TREE_INSTRUCTIONS + rows + each * self.sums) * trees)

    def intrinsic(self) -> Intrinsic:
        sections = read_sections(__file__)
        portable = self._text(sections, self._portable_steps(sections))
        text = {}
        if self.isa != "portable":
            text["gnu"] = self._text(sections, self._assembly(sections))
        rows: tuple[Operand, ...] = ()
        if self.ends is EndForm.ROWS:
            rows = pointers(INT32, rows=1)
        elif self.ends is EndForm.SPLIT_ROWS:
            rows = pointers(UINT16, rows=1)
        return Intrinsic(
            name=self.name,
            operands=(
                *pointers(UINT32, nodes=1),
                *pointers(self.ends.dtype, ends=1),
                *pointers(UINT32, keys=1),
                *rows,
                *pointers(INT32, "rw", sums=1),
                *immediates("trees", "outputs"),
            ),
            meaning=self.meaning,
            portable=portable,
            requires="" if self.isa == "portable" else self.isa,
            text=text,
            doc="Adds the leaves that the keys of the features reach.",
            count=self.count,
            is_walk=True,
        )

    def _portable_steps(self, sections: Mapping[str, str]) -> str:
        steps = [sections["step_portable"]] * self.steps
        parts = sections["begin_portable"], *steps, sections["end_portable"]
        return "\n".join(parts)

    def _assembly(self, sections: Mapping[str, str]) -> str:
        step = sections[f"step_{self.isa}"].splitlines()
        lines = [f'    "{line}\\n"' for _ in range(self.steps) for line in step]
        return sections["asm"].replace("$lines", "\n".join(lines))

    def _text(self, sections: Mapping[str, str], descend: str) -> str:
        begin, add, end = [], [], []
        is_split = self.ends is EndForm.SPLIT_ROWS
        if self.sums <= _NAMED_SUMS_MAX:
            for k in range(self.sums):
                high = f"row[{self.sums + k // 2}]"
                high = f"{high} >> 8" if k % 2 else f"{high} & 255"
                value = f"row[{k}] + ({high}) * 65536" if is_split else f"row[{k}]"
                begin.append(f"int32_t sum{k} = sums[{k}];")
                add.append(f"sum{k} += {value};")
                end.append(f"sums[{k}] = sum{k};")
        else:
            add.append(sections["add_split_row" if is_split else "add_row"])
        parts = {
            "descend": descend,
            "find": sections[f"find_{self.ends.value}"],
            "add": "\n".join(add),
        }
        inner = {name: part.replace("\n", "\n    ") for name, part in parts.items()}
        return fill_text(
            sections["walk"], begin="\n".join(begin), end="\n".join(end), **inner
        ).strip("\n")


def _makers() -> Mapping[str, Callable[[], Intrinsic]]:
    found: dict[str, Callable[[], Intrinsic]] = {}
    for isa in _STEP_INSTRUCTIONS:
        for steps in range(1, STEPS_MAX + 1):
            for sums in range(1, _NAMED_SUMS_MAX + 2):
                for form in EndForm:
                    walk = _Walk(isa, steps, form, sums)
                    found[walk.name] = partial(_Walk.intrinsic, walk)
    return found


INTRINSIC_MAKERS = _makers()
