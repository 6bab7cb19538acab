"""Trees as tables of branches, and the loop that walks them.

A branch is its threshold and a word of 32 bits, with the code of each side:

    narrow:  | left code: s bits | right code: s bits | column: 32 - 2 s bits |

Where these fields are too small, it has a word for each side:

    wide:    | left code: s bits  | column: 32 - s bits |
             | right code: s bits | column: 32 - s bits |

A code at or above 0 is a branch, counted from the first branch of the tree. Below 0 it
is ~ the row of a leaf, counted from the first row of the tree, or of the table if trees
share rows. The compiler makes the codes from the preorder of a tree: a side leads to
later branches only, so every walk ends.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, UINT16, UINT32, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.extensions.tree_ensemble.forest import Forest, TreeGroup
from firmwright.extensions.tree_ensemble.keys import Comparands, FloatValues
from firmwright.ir import tir
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.ops.kernel import Kernel

_NAMED_SUMS_MAX = 4
"""Number of outputs up to which the walk keeps each sum in a variable."""
_STEP_INSTRUCTIONS, _FLOAT_STEP_INSTRUCTIONS = 9, 12
_TREE_INSTRUCTIONS = 8


class WordForm(Enum):
    """The words of a branch; the value is their number."""

    NARROW = 1
    WIDE = 2

    @property
    def lower_name(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class NodeTable:
    """The words of all branches, and the rows of values that leaves have.

    A code has `side_bits`. `row_step` is the number of values from the first row of a
    tree to that of the next one, for each leaf of the tree: 0 if trees share rows.
    """

    form: WordForm
    side_bits: int
    words: Array
    rows: Array
    row_step: int

    @property
    def size_bytes(self) -> int:
        return int(self.words.nbytes + self.rows.nbytes)


def build_node_table(group: TreeGroup) -> NodeTable:
    """Return the smallest table of some trees; NotSupportedError if no form suits."""
    forest, shared = group.forest, group.row_indices
    outputs = len(group.outputs)
    tables = []
    for rows, numbers, step in (
        (group.rows, shared, 0),
        (group.rows[shared], _leaf_numbers(forest), outputs),
    ):
        sides = _side_codes(forest, numbers)
        for form in WordForm:
            bits, words = _pack(form, sides, forest)
            if bits:
                tables.append(NodeTable(form, bits, words, rows, step))
    if not tables:
        largest = int(forest.sizes.max())
        what = f"a tree of {largest} branches over {len(forest.features)} features"
        raise NotSupportedError(what)
    return min(tables, key=lambda table: table.size_bytes)


def _leaf_numbers(forest: Forest) -> Array:
    """Return the number of each leaf in its tree."""
    counts = forest.sizes.astype(np.int64) + 1
    firsts = np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(np.arange(len(firsts)) - firsts)


def _side_codes(forest: Forest, leaf_numbers: Array) -> Array:
    """Return the codes of the left and right side of each branch."""
    codes = np.zeros((forest.branches, 2), np.int64)
    lefts, numbers = forest.left_counts.tolist(), leaf_numbers.tolist()
    first = 0
    for tree, size in enumerate(forest.sizes.tolist()):
        # Subtrees: first branch in the tree, branches, number of leaves before.
        waiting = [(0, size, first + tree)] if size else []
        while waiting:
            at, below, leaf = waiting.pop()
            left = lefts[first + at]
            right = below - 1 - left
            parts = ((at + 1, left, leaf), (at + 1 + left, right, leaf + left + 1))
            for side, (start, branches, leaves_before) in enumerate(parts):
                if branches:
                    waiting.append((start, branches, leaves_before))
                    codes[first + at, side] = start
                else:
                    codes[first + at, side] = ~numbers[leaves_before]
        first += size
    return codes


def _pack(form: WordForm, sides: Array, forest: Forest) -> tuple[int, Array]:
    """Return the bits of a code and the words of all branches; 0 if they do not fit."""
    column_bits = max(len(forest.features) - 1, 1).bit_length()
    per_word = 2 // form.value
    bits = (32 - column_bits) // per_word
    code_bits = int(np.maximum(sides, ~sides).max()).bit_length() + 1
    if code_bits > bits:
        return 0, sides
    masked = sides & ((1 << bits) - 1)
    if form is WordForm.NARROW:
        high = masked[:, :1] << (32 - bits) | masked[:, 1:] << (32 - 2 * bits)
    else:
        high = masked << (32 - bits)
    return bits, np.asarray((high | forest.columns[:, None]).reshape(-1), np.uint32)


def walk_trees(
    b: Kernel, group: TreeGroup, kind: Comparands, keys: tir.Buffer, sums: tir.Buffer
) -> None:
    """Add the row of the leaf that each tree of a group reaches to the sums.

    The keys may be the features themselves if missing values go right.
    """
    dtype = FLOAT32 if isinstance(kind, FloatValues) else kind.dtype
    if isinstance(kind, FloatValues):
        group = replace(group, forest=_of_features(group.forest))
    table = build_node_table(group)
    words = b.constant("branches", table.words, UINT32)
    thresholds = b.constant("thresholds", kind.thresholds(group.forest), dtype)
    sizes = b.constant("sizes", group.forest.sizes, _size_dtype(table.form))
    rows = b.constant("leaves", table.rows, INT32)
    outputs = len(group.outputs)
    whole = [words, thresholds, sizes, keys, rows]
    places = [b.pointer(item, 0, item.span_elements) for item in whole]
    places.append(b.pointer(sums, group.outputs[0], outputs, "rw"))
    numbers = len(group.forest.sizes), table.side_bits, outputs, table.row_step
    b.evaluate(_walk_name(table.form, dtype, outputs), [*places, *numbers])


def _of_features(forest: Forest) -> Forest:
    """Return the forest with a column for each feature up to the last one."""
    features = np.array([feature for feature, _ in forest.features])
    columns = tuple((feature, False) for feature in range(int(features.max()) + 1))
    return replace(forest, columns=features[forest.columns], features=columns)


def _size_dtype(form: WordForm) -> DType:
    return UINT16 if form is WordForm.NARROW else INT32


def _walk_name(form: WordForm, dtype: DType, outputs: int) -> str:
    named = outputs if outputs <= _NAMED_SUMS_MAX else "n"
    return f"walk_{form.lower_name}_trees_{dtype.short}_{named}"


def _walk(
    form: WordForm,
    words: Array,
    thresholds: Array,
    sizes: Array,
    keys: Array,
    rows: Array,
    sums: Array,
    trees: Array,
    side_bits: Array,
    outputs: Array,
    row_step: Array,
) -> Array:
    """Compute the new sums, as the C of the walk does."""
    bits, count = int(np.max(side_bits)), int(np.max(outputs))
    step = int(np.max(row_step))
    words = words.reshape(-1, form.value).astype(np.int64)
    values, totals = rows.reshape(-1, count), np.array(sums)
    first, first_row = 0, 0
    for size in sizes.reshape(-1)[: int(np.max(trees))].tolist():
        at = 0
        while at >= 0:
            branch = words[first + at]
            column_bits = 32 - bits * (2 // form.value)
            column = int(branch[0]) & ((1 << column_bits) - 1)
            is_right = not keys.reshape(-1)[column] <= thresholds[first + at]
            if form is WordForm.NARROW:
                word = int(branch[0]) << (bits if is_right else 0)
            else:
                word = int(branch[int(is_right)])
            code = (word & 0xFFFFFFFF) >> (32 - bits)
            at = code - ((code >> (bits - 1)) << bits)
        totals = totals + values[first_row + ~at].reshape(totals.shape)
        first += size
        first_row += (size + 1) * step // count
    return totals


def _count(step: int, args: Sequence[int]) -> int:
    """Return the instructions of trees a tenth deeper than balanced ones."""
    branches, outputs = args[1], args[8]
    trees = max(args[6], 1)
    steps = trees * 1.1 * np.log2(branches / trees + 1)
    return int(step * steps + (_TREE_INSTRUCTIONS + 2 * outputs) * trees)


def _make_walk(form: WordForm, dtype: DType, named: int) -> Intrinsic:
    sections, is_float = read_sections(__file__), dtype == FLOAT32
    if named:
        begin, add, end = [], [], []
        for k in range(named):
            begin.append(f"int32_t sum{k} = sums[{k}];")
            add.append(f"sum{k} += row[{k}];")
            end.append(f"sums[{k}] = sum{k};")
    else:
        begin, add, end = [], [sections["add_row"]], []
    text = fill_text(
        sections["walk"],
        begin="\n".join(begin),
        step=sections[f"step_{form.lower_name}"].replace("\n", "\n" + " " * 8),
        add="\n".join(add).replace("\n", "\n" + " " * 4),
        end="\n".join(end),
        words=form.value,
    )
    return Intrinsic(
        name=_walk_name(form, dtype, named or _NAMED_SUMS_MAX + 1),
        operands=(
            *pointers(UINT32, branches=1),
            *pointers(dtype, thresholds=1),
            *pointers(_size_dtype(form), sizes=1),
            *pointers(FLOAT32 if is_float else INT32, keys=1),
            *pointers(INT32, rows=1),
            *pointers(INT32, "rw", sums=1),
            *immediates("trees", "side_bits", "outputs", "row_step"),
        ),
        meaning=partial(_walk, form),
        portable=text.strip("\n"),
        doc="Adds the leaves that the keys of the features reach.",
        count=partial(
            _count, _FLOAT_STEP_INSTRUCTIONS if is_float else _STEP_INSTRUCTIONS
        ),
        is_walk=True,
    )


def _makers() -> Mapping[str, Callable[[], Intrinsic]]:
    found: dict[str, Callable[[], Intrinsic]] = {}
    for form in WordForm:
        for dtype in (INT32, UINT16, FLOAT32):
            for named in range(_NAMED_SUMS_MAX + 1):
                name = _walk_name(form, dtype, named or _NAMED_SUMS_MAX + 1)
                found[name] = partial(_make_walk, form, dtype, named)
    return found


INTRINSIC_MAKERS = _makers()
