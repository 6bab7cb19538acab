"""What operators that only rearrange elements share: a list of moves, each a nest of loops.

A `Move` copies elements from one input to one output: element [i0, i1, ...] from `x_offset + sum
of i * x_stride` to `y_offset + sum of i * y_stride`, flat; a stride may be 0 or negative. Where an
axis has a table, its index into the input comes from there, and its index into the output from
`y_table`. Stored values are copied as they are:
TFLite looks at no scale here, nor do we. Exact in every element type, in both profiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from firmwright.base.dtypes import (
    BOOL,
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DType,
)
from firmwright.ir.core import Attr
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import (
    Array,
    Case,
    CaseTensor,
    ImportContext,
    Imported,
    NotSupportedError,
    Numerics,
    NumericsCell,
    OpCall,
    OpDef,
    Windows,
)
from firmwright.ir.tir.builder import INDEX, E, expr, minimum
from firmwright.ir.tir.nodes import Buffer
from firmwright.ops.kernel import Kernel

DTYPES = (INT8, UINT8, INT16, INT32, INT64, FLOAT32, BOOL, UINT16, UINT32, UINT64)


@dataclass(frozen=True, slots=True)
class Axis:
    """One loop of a move."""

    extent: int
    x_stride: int
    y_stride: int
    table: tuple[int, ...] = ()
    y_table: tuple[int, ...] = ()

    @property
    def is_plain(self) -> bool:
        return not (self.table or self.y_table)


@dataclass(frozen=True, slots=True)
class Move:
    """See the module docstring; `source` and `result` are positions of input and output."""

    axes: tuple[Axis, ...]
    x_offset: int = 0
    y_offset: int = 0
    source: int = 0
    result: int = 0

    def merged(self) -> Move:
        """The same with as few loops as strides allow; none of one step."""
        kept: list[Axis] = []
        for axis in self.axes:
            if axis.extent == 1 and axis.is_plain:
                continue
            if kept and _continues(kept[-1], axis):
                kept[-1] = Axis(kept[-1].extent * axis.extent, axis.x_stride, axis.y_stride)
            else:
                kept.append(axis)
        return Move(tuple(kept), self.x_offset, self.y_offset, self.source, self.result)


def windows_of(call: OpCall, moves: Sequence[Move]) -> Windows | None:
    """The moves as windows: each a run of elements that is all of an output, or of an input."""
    runs = [move.merged() for move in moves]
    if any(axis != Axis(axis.extent, 1, 1) for run in runs for axis in run.axes):
        return None
    ends = [(run.source, run.y_offset, run.result) for run in runs]
    if ends == [(0, 0, result) for result in range(len(call.outputs))]:
        return Windows("input", tuple(run.x_offset for run in runs))
    ends = [(run.result, run.x_offset, run.source) for run in runs]
    if ends == [(0, 0, source) for source in range(len(call.inputs))]:
        return Windows("output", tuple(run.y_offset for run in runs))
    return None


def _continues(outer: Axis, inner: Axis) -> bool:
    """Whether both loops are one that takes the inner steps throughout."""
    if not (outer.is_plain and inner.is_plain):
        return False
    return (outer.x_stride, outer.y_stride) == (
        inner.extent * inner.x_stride,
        inner.extent * inner.y_stride,
    )


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Elements between neighbours along each axis of a compact tensor."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def is_view(shape: Sequence[int], perm: Sequence[int]) -> bool:
    """Whether a transposition moves axes of one element only: the bytes stay where they are."""
    order = [axis for axis in perm if shape[axis] > 1]
    return order == sorted(order)


def axes_of(extents: Sequence[int], x_strides: Sequence[int]) -> tuple[Axis, ...]:
    """Loops over a compact output of `extents`."""
    return tuple(map(Axis, extents, x_strides, strides_of(extents)))


def lower(call: OpCall, b: Kernel, moves: Sequence[Move], fill: float | None = None) -> None:
    """The moves, over an output that is `fill` where none goes."""
    if fill is not None:
        lower_fill(b, b.y, fill)
    for move in moves:
        _lower_move(b, move.merged(), b.input(move.source).elements)


def lower_fill(b: Kernel, y: Buffer, value: float | E) -> None:
    """Every element of `y` is `value`."""
    with (
        b.window("whole", y, 0, (y.elements,), access="w") as flat,
        b.for_("i", y.elements) as i,
    ):
        b.store(flat, [i], value)


def _lower_move(b: Kernel, move: Move, count: int) -> None:
    result = b.outputs[move.result]

    def place(position: int, i: E, table: tuple[int, ...]) -> E:
        if not table:
            return i
        stored = tables[position, table]
        return minimum(b.load(stored, [i]).cast(INDEX), max(table))

    tables = {
        (position, table): b.constant("places", np.array(table), narrowest(table))
        for position, axis in enumerate(move.axes)
        for table in (axis.table, axis.y_table)
        if table
    }
    with (
        b.window("from", b.input(move.source), 0, (count,)) as x,
        b.window("to", result, 0, (result.elements,), access="w") as y,
        ExitStack() as stack,
    ):
        there, here = E(expr(move.x_offset)), E(expr(move.y_offset))
        for position, axis in enumerate(move.axes):
            i = stack.enter_context(b.for_(f"i{position}", axis.extent))
            here = here + place(position, i, axis.y_table) * axis.y_stride
            there = there + place(position, i, axis.table) * axis.x_stride
        b.store(y, [here], b.load(x, [there]))


def narrowest(values: Sequence[int]) -> DType:
    """The least type without sign that holds `values`."""
    return next(kind for kind in (UINT8, UINT16, INT32) if max(values) <= kind.max)


@dataclass(frozen=True, slots=True)
class Rearrangement:
    """An operator: output shapes, moves and numpy meaning of a call, and what no move reaches."""

    shapes: Callable[[OpCall], Sequence[tuple[int, ...]]]
    moves: Callable[[OpCall], Sequence[Move]]
    meaning: Callable[[OpCall, Sequence[Array]], Sequence[Array]]
    fill: Callable[[OpCall], float | None] = lambda call: None


def move_op(
    name: str,
    how: Rearrangement,
    imports: dict[str, Callable[[ImportContext], Imported]],
    cases: Callable[[], Iterator[Case]],
    profiles: Sequence[Numerics] = ("litert", "tflm"),
) -> OpDef:
    """The record of an operator that rearranges."""

    def infer(call: OpCall) -> tuple[TensorType, ...]:
        kind = call.input(0).dtype
        if kind not in DTYPES or any(item is None or item.dtype != kind for item in call.inputs):
            raise NotSupportedError(f"a {name} of {kind.name}")
        shapes = how.shapes(call)
        if len(shapes) != len(call.outputs):
            raise NotSupportedError(f"{len(call.outputs)} outputs of {len(shapes)}")
        if any(n < 1 for shape in shapes for n in shape):
            raise NotSupportedError("an output without elements")
        return tuple(
            TensorType(shape, kind, y.quantization)
            for shape, y in zip(shapes, call.outputs, strict=True)
        )

    def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return tuple(np.asarray(array, order="C") for array in how.meaning(call, arrays))

    def windows(call: OpCall) -> Windows | None:
        return None if how.fill(call) is not None else windows_of(call, how.moves(call))

    return OpDef(
        name=name,
        infer=infer,
        reference=reference,
        lower=lambda call, b: lower(call, b, how.moves(call), how.fill(call)),
        imports={f"tflite:{builtin}": imported for builtin, imported in imports.items()},
        cases=cases,
        dtypes=tuple(kind.name for kind in DTYPES),
        numerics={
            profile: NumericsCell(None, "copies", f"reference_ops {name}") for profile in profiles
        },
        windows=windows,
    )


def present(context: ImportContext, inputs: int) -> None:
    """At least `inputs` inputs, none of those absent."""
    if len(context.inputs) < inputs or None in context.inputs[:inputs] or not context.outputs:
        raise NotSupportedError(f"a node without all of its {inputs} inputs")


def constant_ints(context: ImportContext, index: int, what: str) -> tuple[int, ...]:
    """The values of an input that must be constant."""
    array = context.constants[index] if index < len(context.constants) else None
    if array is None:
        raise NotSupportedError(f"{what} that are not constant")
    if array.dtype.kind not in "iub":
        raise NotSupportedError(f"{what} of type {array.dtype}")
    return tuple(int(n) for n in array.reshape(-1))


def axis_of(axis: object, rank: int) -> int:
    """An axis counted from 0."""
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise NotSupportedError(f"axis {axis} of {rank} dimensions")
    return axis % rank


def plain(shape: Sequence[int], dtype: str) -> CaseTensor:
    """A tensor of a case; int8 has a quantisation, which does not matter."""
    scales, zero_points = ((0.5,), (3,)) if dtype == "int8" else ((), ())
    return CaseTensor(tuple(shape), dtype, scales, zero_points)


def ints(*values: int) -> CaseTensor:
    """A constant int32 vector."""
    return CaseTensor((len(values),), "int32", data=np.array(values, np.int32))


def index_tensor(shape: Sequence[int], count: int) -> CaseTensor:
    """Variable indices of `count` places."""
    return CaseTensor(tuple(shape), "int32", limits=(0, count - 1))


BOTH: tuple[Numerics, ...] = ("litert", "tflm")
LITERT: tuple[Numerics, ...] = ("litert",)
TFLM: tuple[Numerics, ...] = ("tflm",)
Importer = Callable[[ImportContext], Imported]


def importer(
    name: str, inputs: int, attributes: Callable[[ImportContext], dict[str, Attr]]
) -> Importer:
    """Keeps input 0; the others become attributes."""

    def imported(context: ImportContext) -> Imported:
        present(context, inputs)
        return Imported(name, attributes(context), (0,))

    return imported


def rank_of(context: ImportContext, index: int = 0) -> int:
    x = context.inputs[index]
    assert x is not None  # by present
    return len(x.shape)


def move_cases(
    builtin: str,
    name: str,
    x: Sequence[int],
    y: Sequence[int],
    extra: Sequence[CaseTensor] = (),
    options: Mapping[str, object] = MappingProxyType({}),
    oracles: tuple[Numerics, ...] = BOTH,
    dtypes: Sequence[str] = ("int8", "float32"),
) -> Iterator[Case]:
    for dtype in dtypes:
        inputs = (plain(x, dtype), *extra)
        yield Case(f"{name}_{dtype}", builtin, inputs, (plain(y, dtype),), options, oracles)
