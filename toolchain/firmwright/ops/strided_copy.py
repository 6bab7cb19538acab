"""What operators that only rearrange elements share: a list of moves, each a nest of loops.

A `StridedCopy` copies elements from one input to one output: element [i0, i1, ...] from `x_offset
+ sum
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
from firmwright.ir import tir
from firmwright.ir.core import Attr
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import (
    Array,
    CaseTensor,
    ConformanceCase,
    ImportContext,
    ImportedCall,
    NotSupportedError,
    NumericsProfile,
    NumericsSpec,
    OpCall,
    OpDef,
    Subviews,
)
from firmwright.ir.tir.builder import INDEX, ArithExpr, as_expr, minimum
from firmwright.ops.kernel import Kernel

DTYPES = (INT8, UINT8, INT16, INT32, INT64, FLOAT32, BOOL, UINT16, UINT32, UINT64)


@dataclass(frozen=True, slots=True)
class CopyAxis:
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
class StridedCopy:
    """See the module docstring; `source` and `result` are positions of input and output."""

    axes: tuple[CopyAxis, ...]
    x_offset: int = 0
    y_offset: int = 0
    source: int = 0
    result: int = 0

    def merged(self) -> StridedCopy:
        """The same with as few loops as strides allow; none of one step."""
        kept: list[CopyAxis] = []
        for axis in self.axes:
            if axis.extent == 1 and axis.is_plain:
                continue
            if kept and _continues(kept[-1], axis):
                kept[-1] = CopyAxis(kept[-1].extent * axis.extent, axis.x_stride, axis.y_stride)
            else:
                kept.append(axis)
        return StridedCopy(tuple(kept), self.x_offset, self.y_offset, self.source, self.result)


def subviews_of(call: OpCall, moves: Sequence[StridedCopy]) -> Subviews | None:
    """The moves as windows: each a run of elements that is all of an output, or of an input."""
    runs = [move.merged() for move in moves]
    if any(axis != CopyAxis(axis.extent, 1, 1) for run in runs for axis in run.axes):
        return None
    ends = [(run.source, run.y_offset, run.result) for run in runs]
    if ends == [(0, 0, result) for result in range(len(call.outputs))]:
        return Subviews("input", tuple(run.x_offset for run in runs))
    ends = [(run.result, run.x_offset, run.source) for run in runs]
    if ends == [(0, 0, source) for source in range(len(call.inputs))]:
        return Subviews("output", tuple(run.y_offset for run in runs))
    return None


def _continues(outer: CopyAxis, inner: CopyAxis) -> bool:
    """Whether both loops are one that takes the inner steps throughout."""
    if not (outer.is_plain and inner.is_plain):
        return False
    return (outer.x_stride, outer.y_stride) == (
        inner.extent * inner.x_stride,
        inner.extent * inner.y_stride,
    )


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Elements between neighbours along each axis of a compact tensor."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def is_view_transpose(shape: Sequence[int], perm: Sequence[int]) -> bool:
    """Whether a transposition moves axes of one element only: the bytes stay where they are."""
    order = [axis for axis in perm if shape[axis] > 1]
    return order == sorted(order)


def copy_axes(extents: Sequence[int], x_strides: Sequence[int]) -> tuple[CopyAxis, ...]:
    """Loops over a compact output of `extents`."""
    return tuple(map(CopyAxis, extents, x_strides, row_major_strides(extents)))


def lower(call: OpCall, b: Kernel, moves: Sequence[StridedCopy], fill: float | None = None) -> None:
    """The moves, over an output that is `fill` where none goes."""
    if fill is not None:
        lower_fill(b, b.y, fill)
    for move in moves:
        _lower_move(b, move.merged(), b.input(move.source).elements)


def lower_fill(b: Kernel, y: tir.Buffer, value: float | ArithExpr) -> None:
    """Every element of `y` is `value`."""
    with (
        b.view("whole", y, 0, (y.elements,), access="w") as flat,
        b.for_("i", y.elements) as i,
    ):
        b.store(flat, [i], value)


def _lower_move(b: Kernel, move: StridedCopy, count: int) -> None:
    result = b.outputs[move.result]

    def place(position: int, i: ArithExpr, table: tuple[int, ...]) -> ArithExpr:
        if not table:
            return i
        stored = tables[position, table]
        return minimum(b.load(stored, [i]).cast(INDEX), max(table))

    tables = {
        (position, table): b.constant("places", np.array(table), narrowest_index_dtype(table))
        for position, axis in enumerate(move.axes)
        for table in (axis.table, axis.y_table)
        if table
    }
    with (
        b.view("from", b.input(move.source), 0, (count,)) as x,
        b.view("to", result, 0, (result.elements,), access="w") as y,
        ExitStack() as stack,
    ):
        there, here = ArithExpr(as_expr(move.x_offset)), ArithExpr(as_expr(move.y_offset))
        for position, axis in enumerate(move.axes):
            i = stack.enter_context(b.for_(f"i{position}", axis.extent))
            here = here + place(position, i, axis.y_table) * axis.y_stride
            there = there + place(position, i, axis.table) * axis.x_stride
        b.store(y, [here], b.load(x, [there]))


def narrowest_index_dtype(values: Sequence[int]) -> DType:
    """The least type without sign that holds `values`."""
    return next(kind for kind in (UINT8, UINT16, INT32) if max(values) <= kind.max)


@dataclass(frozen=True, slots=True)
class DataMovement:
    """An operator: output shapes, moves and numpy meaning of a call, and what no move reaches."""

    shapes: Callable[[OpCall], Sequence[tuple[int, ...]]]
    moves: Callable[[OpCall], Sequence[StridedCopy]]
    meaning: Callable[[OpCall, Sequence[Array]], Sequence[Array]]
    fill: Callable[[OpCall], float | None] = lambda call: None


def data_movement_op(
    name: str,
    how: DataMovement,
    imports: dict[str, Callable[[ImportContext], ImportedCall]],
    cases: Callable[[], Iterator[ConformanceCase]],
    profiles: Sequence[NumericsProfile] = ("litert", "tflm"),
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

    def windows(call: OpCall) -> Subviews | None:
        return None if how.fill(call) is not None else subviews_of(call, how.moves(call))

    return OpDef(
        name=name,
        infer=infer,
        reference=reference,
        lower=lambda call, b: lower(call, b, how.moves(call), how.fill(call)),
        imports={f"tflite:{builtin}": imported for builtin, imported in imports.items()},
        cases=cases,
        dtypes=tuple(kind.name for kind in DTYPES),
        numerics={
            profile: NumericsSpec(None, "copies", f"reference_ops {name}") for profile in profiles
        },
        subviews=windows,
    )


def require_inputs(context: ImportContext, inputs: int) -> None:
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


def normalize_axis(axis: object, rank: int) -> int:
    """An axis counted from 0."""
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise NotSupportedError(f"axis {axis} of {rank} dimensions")
    return axis % rank


def data_tensor(shape: Sequence[int], dtype: str) -> CaseTensor:
    """A tensor of a case; int8 has a quantisation, which does not matter."""
    scales, zero_points = ((0.5,), (3,)) if dtype == "int8" else ((), ())
    return CaseTensor(tuple(shape), dtype, scales, zero_points)


def int_vector(*values: int) -> CaseTensor:
    """A constant int32 vector."""
    return CaseTensor((len(values),), "int32", data=np.array(values, np.int32))


def index_tensor(shape: Sequence[int], count: int) -> CaseTensor:
    """Variable indices of `count` places."""
    return CaseTensor(tuple(shape), "int32", value_range=(0, count - 1))


BOTH: tuple[NumericsProfile, ...] = ("litert", "tflm")
LITERT: tuple[NumericsProfile, ...] = ("litert",)
TFLM: tuple[NumericsProfile, ...] = ("tflm",)
Importer = Callable[[ImportContext], ImportedCall]


def attrs_importer(
    name: str, inputs: int, attributes: Callable[[ImportContext], dict[str, Attr]]
) -> Importer:
    """Keeps input 0; the others become attributes."""

    def imported(context: ImportContext) -> ImportedCall:
        require_inputs(context, inputs)
        return ImportedCall(name, attributes(context), (0,))

    return imported


def input_rank(context: ImportContext, index: int = 0) -> int:
    x = context.inputs[index]
    assert x is not None  # by present
    return len(x.shape)


def data_movement_cases(
    builtin: str,
    name: str,
    x: Sequence[int],
    y: Sequence[int],
    extra: Sequence[CaseTensor] = (),
    options: Mapping[str, object] = MappingProxyType({}),
    oracles: tuple[NumericsProfile, ...] = BOTH,
    dtypes: Sequence[str] = ("int8", "float32"),
) -> Iterator[ConformanceCase]:
    for dtype in dtypes:
        inputs = (data_tensor(x, dtype), *extra)
        yield ConformanceCase(
            f"{name}_{dtype}", builtin, inputs, (data_tensor(y, dtype),), options, oracles
        )
