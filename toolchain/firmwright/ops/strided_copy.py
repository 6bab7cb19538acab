"""Strided copies: the form shared by all operators that only move elements.

Stored values are copied unchanged; scales are ignored as in TFLite.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from firmwright.base import dtypes
from firmwright.base.dtypes import INT8, INT32, UINT8, UINT16, UINT32, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.tir.builder import INDEX, ArithExpr, as_expr, minimum
from firmwright.ops.kernel import CopyRun, Kernel
from firmwright.ops.opdef import OpDef, Subviews
from firmwright.ops.storage_types import convert

_NAMES = "int8 uint8 int16 int32 int64 float32 bool uint16 uint32 uint64 float64"
_WORD_BYTES = 4
_UNROLL = (4, 3, 2)
_RUN_MIN_BYTES = 12
_RUN_MIN_ELEMENTS = 8
_RUN_MIN_WORDS = 8
_STEP_MAX = 0xFFFF // 7
_WORDS = {kind.size_bytes: kind for kind in (UINT8, UINT16, UINT32)}
DTYPES = (*map(dtypes.get_dtype, _NAMES.split()), *dtypes.STORAGE_DTYPES)
MOVES = (
    "batch_to_space_nd",
    "broadcast_to",
    "concatenation",
    "depth_to_space",
    "gather",
    "mirror_pad",
    "pack",
    "reshape",
    "resize_nearest",
    "reverse_v2",
    "space_to_batch_nd",
    "space_to_depth",
    "split",
    "strided_slice",
    "tile",
    "transpose",
    "unpack",
)
"""Operators whose default loops are copies, which schedules emit in their own way."""


@dataclass(frozen=True, slots=True)
class CopyAxis:
    """One loop of a strided copy; a table, if set, maps the loop index."""

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
    """A copy from input number `source` to output number `result`.

    Element [i0, i1, ...] goes from `x_offset + sum of i * x_stride` to `y_offset + sum
    of i * y_stride` (flat; strides may be 0 or negative). An axis may take its input
    index from `table` and its output index from `y_table`.
    """

    axes: tuple[CopyAxis, ...]
    x_offset: int = 0
    y_offset: int = 0
    source: int = 0
    result: int = 0

    def merge_loops(self) -> "StridedCopy":
        loops: list[CopyAxis] = []
        for axis in self.axes:
            if axis.extent == 1 and axis.is_plain:
                continue
            if loops and _is_contiguous(loops[-1], axis):
                extent = loops[-1].extent * axis.extent
                loops[-1] = CopyAxis(extent, axis.x_stride, axis.y_stride)
            else:
                loops.append(axis)
        return replace(self, axes=tuple(loops))


def subviews_of(call: OpCall, copies: Sequence[StridedCopy]) -> Subviews | None:
    """Return the copies as views if each is a contiguous, whole output or input."""
    runs = [move.merge_loops() for move in copies]
    for run in runs:
        if not all(map(_is_run, run.axes)):
            return None
    ends = [(run.source, run.y_offset, run.result) for run in runs]
    if ends == _whole_ends(len(call.outputs)):
        return Subviews("input", tuple(run.x_offset for run in runs))
    ends = [(run.result, run.x_offset, run.source) for run in runs]
    if ends == _whole_ends(len(call.inputs)):
        return Subviews("output", tuple(run.y_offset for run in runs))
    return None


def _whole_ends(count: int) -> list[tuple[int, int, int]]:
    """Return the ends of copies between one tensor and each, as a whole, of `count`."""
    return [(0, 0, number) for number in range(count)]


def _is_run(axis: CopyAxis) -> bool:
    """Whether the elements of an axis are adjacent in input and output."""
    return axis == CopyAxis(axis.extent, 1, 1)


def _is_contiguous(outer: CopyAxis, inner: CopyAxis) -> bool:
    """Whether the two loops are equivalent to one with the inner strides."""
    if not (outer.is_plain and inner.is_plain):
        return False
    return (outer.x_stride, outer.y_stride) == (
        inner.extent * inner.x_stride,
        inner.extent * inner.y_stride,
    )


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def is_view_transpose(shape: Sequence[int], perm: Sequence[int]) -> bool:
    """Whether only axes of length 1 move, so that the bytes stay in place."""
    order = [axis for axis in perm if shape[axis] > 1]
    return order == sorted(order)


def copy_axes(extents: Sequence[int], x_strides: Sequence[int]) -> tuple[CopyAxis, ...]:
    return tuple(map(CopyAxis, extents, x_strides, row_major_strides(extents)))


def _stored_number(value: float, dtype: DType) -> float:
    """Return a number as stored in C: those of a storage type are codes."""
    if not dtype.computed_as:
        return value
    return int(convert(np.array(value), dtype).view(dtype.stored.np))


def lower_fill(b: Kernel, y: tir.Buffer, value: float | ArithExpr) -> None:
    kind = y.dtype
    if not isinstance(value, ArithExpr):
        kind, value = y.dtype.stored, _stored_number(value, y.dtype)
    flat = b.view("whole", y, 0, (y.elements,), dtype=kind, access="w")
    with b.for_("i", y.elements) as i:
        b.store(flat, [i], value)


def lower_copies(b: Kernel, *copies: StridedCopy) -> None:
    """Emit the copies, by words where all offsets and strides are whole words.

    `b.copy_runs` copy long runs.
    """
    runs = b.copy_runs
    for copy in copies:
        dtype = b.input(copy.source).dtype
        merged = copy.merge_loops()
        size = dtype.size_bytes
        inner = merged.axes[-1] if merged.axes else CopyAxis(1, 0, 0)
        is_run = _is_run(inner) and inner.extent * size >= _RUN_MIN_BYTES
        if runs.of_bytes is not None and is_run:
            _lower_copy(b, _in_bytes(merged, size), INT8, runs.of_bytes)
            continue
        parts = [(merged, 1)] if b.keeps_loops else _split_into_words(merged, size)
        for part, lanes in parts:
            kind = UINT32 if lanes > 1 else dtype
            run: StridedCopy | None = None
            if runs.strided and kind.size_bytes in _WORDS:
                run = _longest_run(part)
            if runs.of_words is not None and _is_word_run(part, kind):
                _lower_copy(b, part, UINT32, runs.of_words)
            elif run is not None:
                _lower_copy(b, run, _WORDS[kind.size_bytes], runs.strided)
            else:
                _lower_copy(b, part, kind)


def _is_word_run(copy: StridedCopy, dtype: DType) -> bool:
    """Return whether the last axis is a long run of words."""
    if not copy.axes or dtype.size_bytes != _WORD_BYTES:
        return False
    return _is_run(copy.axes[-1]) and copy.axes[-1].extent >= _RUN_MIN_WORDS


def _longest_run(copy: StridedCopy) -> StridedCopy | None:
    """Return the copy with its longest strided axis last, or None if none is long.

    Vectors have offsets of 16 bits, which limits the strides.
    """
    strided: list[CopyAxis] = []
    for axis in copy.axes:
        strides = axis.x_stride, axis.y_stride
        if axis.is_plain and min(strides) > 0 and 1 < max(strides) <= _STEP_MAX:
            strided.append(axis)
    run = max(strided, key=attrgetter("extent"), default=None)
    if run is None or run.extent < _RUN_MIN_ELEMENTS:
        return None
    others = [axis for axis in copy.axes if axis is not run]
    return replace(copy, axes=(*others, run))


def _in_bytes(copy: StridedCopy, size: int) -> StridedCopy:
    *outer, inner = copy.axes
    axes: list[CopyAxis] = []
    for a in outer:
        x = a.x_stride * size
        y = a.y_stride * size
        axes.append(replace(a, x_stride=x, y_stride=y))
    axes.append(CopyAxis(inner.extent * size, 1, 1))
    x = copy.x_offset * size
    y = copy.y_offset * size
    return replace(copy, axes=tuple(axes), x_offset=x, y_offset=y)


def _split_into_words(
    copy: StridedCopy, size: int
) -> Sequence[tuple[StridedCopy, int]]:
    """Return copies of words, with elements per word, and of the elements left over."""
    lanes = max(_WORD_BYTES // size, 1)
    *outer, inner = copy.axes or (CopyAxis(1, 1, 1),)
    words, rest = divmod(inner.extent, lanes)
    if lanes == 1 or not words or not _is_run(inner):
        return [(copy, 1)]
    steps = [copy.x_offset, copy.y_offset]
    divided: list[CopyAxis] = []
    for a in outer:
        steps += [a.x_stride, a.y_stride]
        x = a.x_stride // lanes
        y = a.y_stride // lanes
        divided.append(replace(a, x_stride=x, y_stride=y))
    if any(n % lanes for n in steps):
        return [(copy, 1)]
    x = copy.x_offset // lanes
    y = copy.y_offset // lanes
    axes = (*divided, CopyAxis(words, 1, 1))
    by_words = replace(copy, axes=axes, x_offset=x, y_offset=y)
    if not rest:
        return [(by_words, lanes)]
    axes = (*outer, CopyAxis(rest, 1, 1))
    x = copy.x_offset + words * lanes
    y = copy.y_offset + words * lanes
    left_over = replace(copy, axes=axes, x_offset=x, y_offset=y)
    return [(by_words, lanes), (left_over, 1)]


def _lower_copy(
    b: Kernel, copy: StridedCopy, dtype: DType, copy_run: CopyRun | None = None
) -> None:
    """Emit a copy of elements seen as `dtype`; `copy_run`, if given, copies the last
    axis.
    """
    source = b.input(copy.source)
    result = b.outputs[copy.result]

    def index(position: int, i: ArithExpr, table: tuple[int, ...]) -> ArithExpr:
        if not table:
            return i
        return minimum(b.load(tables[position, table], [i]).cast(INDEX), max(table))

    tables: dict[tuple[int, tuple[int, ...]], tir.Buffer] = {}
    for position, axis in enumerate(copy.axes):
        for table in filter(None, (axis.table, axis.y_table)):
            kind = narrowest_index_dtype(table)
            tables[position, table] = b.constant("places", np.array(table), kind)
    align = min(dtype.size_bytes, _WORD_BYTES)
    x_size = source.size_bytes // dtype.size_bytes
    y_size = result.size_bytes // dtype.size_bytes
    x = b.view("from", source, 0, (x_size,), dtype=dtype, alignment=align)
    access: tir.AccessMode = "w" if copy_run is None else "rw"
    y = b.view("to", result, 0, (y_size,), dtype=dtype, access=access, alignment=align)
    axes = copy.axes if copy_run is None else copy.axes[:-1]
    with ExitStack() as stack:
        x_index = ArithExpr(as_expr(copy.x_offset))
        y_index = ArithExpr(as_expr(copy.y_offset))
        for position, axis in enumerate(axes):
            is_last = position == len(copy.axes) - 1 and axis.is_plain
            name, extent = f"i{position}", axis.extent
            if is_last:
                i = stack.enter_context(b.unrolled(name, extent, *_UNROLL))
            else:
                i = stack.enter_context(b.for_(name, extent))
            y_index = y_index + index(position, i, axis.y_table) * axis.y_stride
            x_index = x_index + index(position, i, axis.table) * axis.x_stride
        if copy_run is not None:
            copy_run(b, (y, y_index), (x, x_index), copy.axes[-1])
        else:
            b.store(y, [y_index], b.load(x, [x_index]))


def narrowest_index_dtype(values: Sequence[int]) -> DType:
    return next(kind for kind in (UINT8, UINT16, INT32) if max(values) <= kind.max)


def checked_axis(axis: int, rank: int) -> int:
    """Return the axis; NotSupportedError unless it is counted from 0, below `rank`."""
    if not 0 <= axis < rank:
        raise NotSupportedError(f"axis {axis} of {rank} dimensions")
    return axis


def data_movement_op(
    name: str,
    shape: Callable[[OpCall], tuple[int, ...] | list[tuple[int, ...]]],
    copies: Callable[[OpCall], Sequence[StridedCopy]],
    reference: Callable[[OpCall, Sequence[Array]], Sequence[Array]],
    fill: Callable[[OpCall], float | None] = lambda call: None,
) -> OpDef:
    """Build the definition of a data movement operator.

    `shape` returns the shape of the output, or a list for several; `fill` the value of
    elements that no copy writes.
    """

    def infer(call: OpCall) -> tuple[TensorType, ...]:
        kind = call.input(0).dtype
        is_uniform = all(x is not None and x.dtype == kind for x in call.inputs)
        if kind not in DTYPES or not is_uniform:
            raise NotSupportedError(f"a {name} of {kind.name}")
        result = shape(call)
        output_shapes = result if isinstance(result, list) else [result]
        if len(output_shapes) != len(call.outputs):
            raise NotSupportedError(
                f"{len(call.outputs)} outputs, expected {len(output_shapes)}"
            )
        outputs: list[TensorType] = []
        for own, y in zip(output_shapes, call.outputs, strict=True):
            if min(own, default=1) < 1:
                raise NotSupportedError("an output without elements")
            outputs.append(TensorType(own, kind, y.quantization))
        return tuple(outputs)

    def lower(call: OpCall, b: Kernel) -> None:
        value = fill(call)
        if value is not None:
            lower_fill(b, b.y, value)
        lower_copies(b, *copies(call))

    def reference_in_order(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
        results = reference(call, arrays)
        return tuple(np.asarray(array, order="C") for array in results)

    def subviews(call: OpCall) -> Subviews | None:
        return None if fill(call) is not None else subviews_of(call, copies(call))

    return OpDef(
        name=name,
        infer=infer,
        reference=reference_in_order,
        lower=lower,
        subviews=subviews,
    )
