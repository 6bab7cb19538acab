"""Walks of tables of pairs: micro-kernels in assembly of Armv7-M and Armv6-M, and in C.

A step reads the word of a node and the key of its column. In the top levels, the next
node follows from the number of the node and the carry alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT32, UINT16, UINT32, Array
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.extensions.tree_ensemble.forest import TreeGroup
from firmwright.extensions.tree_ensemble.pair_table import (
    LEVELS_MAX,
    STEPS_MAX,
    EndForm,
    PairTable,
)
from firmwright.ir import tir
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, immediates, pointers
from firmwright.ops.kernel import Kernel

_NAMED_SUMS_MAX = 4
_APART_SUMS_MAX = 2
"""Number of outputs up to which the low and the high bits have sums of their own."""
_STEP_INSTRUCTIONS = {"thumb2": 6.0, "thumb1": 5.5, "portable": 6.5}
"""Instructions of a step where one of node_table.py is taken to have nine.

That has nine on Armv7-M, but 13 on other cores, where one of pairs has eight or nine.
"""
_TOP_STEP_INSTRUCTIONS = {"thumb2": 5.0, "thumb1": 4.0, "portable": 6.0}
_TREE_INSTRUCTIONS = 8


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
    ends = b.constant("ends", table.stored_ends, form.dtype)
    whole = [nodes, ends, keys]
    if form is EndForm.ROWS:
        whole.append(b.constant("leaves", table.rows, INT32))
    elif form is EndForm.SPLIT_ROWS:
        whole.append(b.constant("leaves", table.stored_rows, UINT16))
    outputs = len(group.outputs)
    places = [b.pointer(item, 0, item.span_elements) for item in whole]
    places.append(b.pointer(sums, group.outputs[0], outputs, "rw"))
    sums_in_name = min(outputs, _NAMED_SUMS_MAX + 1)
    walk = _Walk(isa, table.steps, table.levels, form, sums_in_name)
    numbers = len(group.forest.sizes), table.end_step, outputs
    b.evaluate(walk.name, [*places, *numbers[: len(walk.numbers)]])


@dataclass(frozen=True, slots=True)
class _Walk:
    """A walk of trees, of a number of steps, by the instructions of `isa`.

    The first `levels` of the steps do not read pairs. More than `_NAMED_SUMS_MAX` sums
    are not kept in variables.
    """

    isa: str
    steps: int
    levels: int
    ends: EndForm
    sums: int

    @property
    def name(self) -> str:
        named = self.sums if self.sums <= _NAMED_SUMS_MAX else "n"
        steps = f"{self.steps}_{self.levels}"
        return f"walk_pairs_{self.isa}_{steps}_{self.ends.value}_{named}"

    @property
    def numbers(self) -> Sequence[str]:
        """Return the names of the last operands."""
        if self.ends is EndForm.VALUES:
            return ("trees",)
        is_loop = self.sums > _NAMED_SUMS_MAX
        return ("trees", "step", "outputs") if is_loop else ("trees", "step")

    def meaning(self, nodes: Array, ends: Array, keys: Array, *rest: Array) -> Array:
        """Compute the new sums, as the C of the walk does."""
        *rows, sums = rest[: -len(self.numbers)]
        trees, *numbers = (int(np.max(number)) for number in rest[len(rows) + 1 :])
        count, totals = sums.size, np.array(sums)
        values = (rows[0] if rows else ends).astype(np.int32)
        stride = count
        if self.ends is EndForm.SPLIT_ROWS:
            stride += (count + 1) // 2
            words = values.reshape(-1, stride)
            high = np.stack([words[:, count:] & 255, words[:, count:] >> 8], axis=2)
            high = high.reshape(len(words), -1)[:, :count]
            values = words[:, :count] + (high << 16)
        values = values.reshape(-1, count)
        branches, first, first_end = nodes.reshape(-1).tolist(), 0, 0
        for _ in range(trees):
            at = 1
            for step in range(self.steps):
                word = branches[first + at]
                key = int(keys.reshape(-1)[(word & 255) // 4])
                pair = at if step < self.levels else word >> 8 & 255
                at = 2 * pair + int(key >= word)
            end = first_end + at
            if rows:
                end = int(ends.reshape(-1)[end]) * numbers[0] // stride
            row = values[end]
            totals = totals + row.reshape(totals.shape)
            sizes = branches[first]
            first += (sizes & 0xFFFF) // 4
            first_end += (sizes >> 16) // ends.dtype.itemsize
        return totals

    def count(self, args: Sequence[int]) -> int:
        """Return the instructions of the walk."""
        trees = max(args[-len(self.numbers)], 1)
        steps = (self.steps - self.levels) * _STEP_INSTRUCTIONS[self.isa]
        steps += self.levels * _TOP_STEP_INSTRUCTIONS[self.isa]
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
                *immediates(*self.numbers),
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
        last = [str(4 * ((2 << level) - 2)) for level in range(self.levels + 1)]
        top = [fill_text(sections["top_portable"], last=at) for at in last[:-1]]
        middle = fill_text(sections["middle_portable"], last=last[-1])
        steps = [sections["step_portable"]] * (self.steps - self.levels)
        begin, end = sections["begin_portable"], sections["end_portable"]
        return "\n".join((begin, *top, middle, *steps, end))

    def _assembly(self, sections: Mapping[str, str]) -> str:
        names = ["root"]
        if self.levels:
            names = ["first"] + [f"top_{self.isa}"] * (self.levels - 1)
        names += [f"step_{self.isa}"] * (self.steps - self.levels)
        lines = [line for name in names for line in sections[name].splitlines()]
        text = "\n".join(f'    "{line}\\n"' for line in lines)
        # Armv6-M has the instructions for eight registers only.
        register = "l" if self.isa == "thumb1" else "r"
        return fill_text(sections["asm"], lines=text, register=register)

    def _text(self, sections: Mapping[str, str], descend: str) -> str:
        begin, add, end = self._sums(sections)
        parts = {
            "descend": descend,
            "find": sections[f"find_{self.ends.value}"],
            "add": "\n".join(add),
        }
        inner = {name: part.replace("\n", "\n    ") for name, part in parts.items()}
        return fill_text(
            sections["walk"], begin="\n".join(begin), end="\n".join(end), **inner
        ).strip("\n")

    def _sums(
        self, sections: Mapping[str, str]
    ) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
        """Return the C before the trees, that adds a row, and after the trees."""
        is_split = self.ends is EndForm.SPLIT_ROWS
        if self.sums > _NAMED_SUMS_MAX:
            return (), [sections["add_split_row" if is_split else "add_row"]], ()
        begin, add, end = [], [], []
        for k in range(self.sums):
            begin.append(f"int32_t sum{k} = sums[{k}];")
            total = f"sum{k}"
            if is_split:
                high = f"row[{self.sums + k // 2}]"
                high = f"{high} >> 8" if k % 2 else f"({high} & 255)"
                add.append(f"sum{k} += row[{k}];")
                if self.sums <= _APART_SUMS_MAX:
                    begin.append(f"int32_t high{k} = 0;")
                    add.append(f"high{k} += {high};")
                    total += f" + high{k} * 65536"
                else:
                    add[-1] = f"sum{k} += row[{k}] + ({high}) * 65536;"
            else:
                add.append(f"sum{k} += row[{k}];")
            end.append(f"sums[{k}] = {total};")
        return begin, add, end


def _makers() -> Mapping[str, Callable[[], Intrinsic]]:
    found: dict[str, Callable[[], Intrinsic]] = {}
    for isa in _STEP_INSTRUCTIONS:
        for steps in range(1, STEPS_MAX + 1):
            for levels in range(min(steps, LEVELS_MAX + 1)):
                for sums in range(1, _NAMED_SUMS_MAX + 2):
                    for form in EndForm:
                        walk = _Walk(isa, steps, levels, form, sums)
                        found[walk.name] = partial(_Walk.intrinsic, walk)
    return found


INTRINSIC_MAKERS = _makers()
