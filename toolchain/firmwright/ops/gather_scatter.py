"""Reads and writes at indices known only at run time.

dynamic_gather and dynamic_scatter have one of these values of `mode`:
    along: each index selects a slice along `axis`.
    elements: each index selects one element along `axis`.
    slices: the last axis of the indices holds coordinates of the leading axes.
The first `batch_dims` axes of x and of the indices correspond. Negative indices count
from the end. dynamic_scatter stores updates in the order of the indices, or combines
them by `step` (add, mul, min, max). dynamic_update_slice writes input 1 over input 0 at
the coordinates in input 2. hybrid_embedding_lookup reads rows of an int8 table, with
one scale or one for each row, as floats. scatter_nd adds each slice of input 1 to zeros
of `shape`, at the coordinates in its row of input 0. Semantics: ONNX's Gather* and
Scatter*, and TFLite's reference operators. These fail for out-of-range indices, whose
low 32 bits are clamped here.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from firmwright.base.dtypes import (
    BOOL,
    FLOAT32,
    INT8,
    INT32,
    INT64,
    UINT32,
    Array,
    DType,
)
from firmwright.base.errors import NotSupportedError
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.movement import (
    DynamicGatherAttrs,
    DynamicScatterAttrs,
    ShapeAttrs,
)
from firmwright.ir.tir.builder import (
    INDEX,
    ArithExpr,
    logical_and,
    maximum,
    minimum,
    select,
)
from firmwright.ops.integer_arithmetic import wrapped_expr
from firmwright.ops.kernel import KERNEL_ALIGNMENT, Kernel
from firmwright.ops.one_hot_reverse_sequence import check_data_and_indices, clamp_index
from firmwright.ops.opdef import OpDef
from firmwright.ops.requantize import quantization_of
from firmwright.ops.strided_copy import (
    DTYPES,
    CopyAxis,
    StridedCopy,
    lower_copies,
    lower_fill,
)

_STEPS: Mapping[str, tuple[tir.BinaryOp, np.ufunc]] = {
    "add": ("add", np.add),
    "mul": ("mul", np.multiply),
    "min": ("min", np.minimum),
    "max": ("max", np.maximum),
}


def gather_axis(call: OpCall) -> int:
    """Return the axis that indices refer to; NotSupportedError if there is none."""
    axis = call.attributes(DynamicGatherAttrs).axis
    if axis is None:
        raise NotSupportedError("a mode that needs an axis, and none")
    return axis


def _check(call: OpCall) -> None:
    attrs = call.attributes(DynamicGatherAttrs)
    x, indices = call.input(0), call.input(1)
    if x.dtype not in DTYPES or indices.dtype not in (INT32, INT64):
        raise NotSupportedError(f"{x.dtype.name} with indices of {indices.dtype.name}")
    mode, rank = attrs.mode, len(x.shape)
    if mode in ("along", "elements"):
        if not 0 <= gather_axis(call) < rank:
            raise NotSupportedError(f"axis {attrs.axis} of {rank} dimensions")
        if mode == "elements" and len(indices.shape) != rank:
            raise NotSupportedError(
                f"indices of {len(indices.shape)} dimensions for data of {rank}"
            )
        batch = _batch_dims(call)
        if batch > min(gather_axis(call), len(indices.shape)):
            raise NotSupportedError(f"{batch} batch dimensions with axis {attrs.axis}")
    elif mode == "slices":
        batch = _batch_dims(call)
        fits = bool(indices.shape) and indices.shape[-1] + batch <= rank
        if not fits or batch >= len(indices.shape):
            raise NotSupportedError(
                f"coordinates {list(indices.shape)} in {list(x.shape)}"
            )
    else:
        raise NotSupportedError(f"the mode {mode!r}")
    if x.shape[: _batch_dims(call)] != indices.shape[: _batch_dims(call)]:
        raise NotSupportedError(
            f"batch dimensions of {list(x.shape)} and {list(indices.shape)}"
        )


def _batch_dims(call: OpCall) -> int:
    return call.attributes(DynamicGatherAttrs).batch_dims or 0


def _read_shape(call: OpCall) -> tuple[int, ...]:
    x = call.input(0).shape
    indices = call.input(1).shape
    match call.attributes(DynamicGatherAttrs).mode:
        case "along":
            axis = gather_axis(call)
            return (*x[:axis], *indices[_batch_dims(call) :], *x[axis + 1 :])
        case "elements":
            return indices
    return (*indices[:-1], *x[_batch_dims(call) + indices[-1] :])


def infer_read(call: OpCall) -> tuple[TensorType, ...]:
    _check(call)
    kind = call.input(0).dtype
    return (TensorType(_read_shape(call), kind, call.output.quantization),)


def infer_write(call: OpCall) -> tuple[TensorType, ...]:
    _check(call)
    x, updates = call.input(0), call.input(2)
    step = call.attributes(DynamicScatterAttrs).step
    if updates.shape != _read_shape(call) or updates.dtype != x.dtype:
        raise NotSupportedError(
            f"updates {list(updates.shape)} of {updates.dtype.name}"
        )
    if step not in ("none", *_STEPS):
        raise NotSupportedError(f"updates combined by {step!r}")
    return (TensorType(x.shape, x.dtype, call.output.quantization),)


Index = TypeVar("Index")
"""An index of the reference, an array, or of the kernel, an expression."""


def _coordinates(
    call: OpCall,
    at: Sequence[Index],
    look_up: Callable[[str, Sequence[Index | int], int], Index],
) -> list[Index]:
    """Return the coordinates in x of result `at`; `look_up` reads indices for axes."""
    attrs = call.attributes(DynamicGatherAttrs)
    x = call.input(0).shape
    indices = call.input(1).shape
    batch = _batch_dims(call)
    if attrs.mode == "slices":
        lead = len(indices) - 1
        named: list[Index] = []
        for k in range(indices[-1]):
            named.append(look_up(f"place{k}", [*at[:lead], k], x[batch + k]))
        return [*at[:batch], *named, *at[lead:]]
    axis = gather_axis(call)
    if attrs.mode == "elements":
        return [*at[:axis], look_up("place", at, x[axis]), *at[axis + 1 :]]
    end = axis + len(indices) - batch
    picked = look_up("place", [*at[:batch], *at[axis:end]], x[axis])
    return [*at[:axis], picked, *at[end:]]


def _numpy_coordinates(call: OpCall, places: Array) -> tuple[Array, ...]:
    """Return the coordinates in x of all results, one array per axis."""

    def look_up(name: str, at: Sequence[Array | int], size: int) -> Array:
        indices = places[tuple(at)].astype(np.int32)
        from_start = np.where(indices < 0, indices + size, indices)
        return np.asarray(np.clip(from_start, 0, size - 1))

    return tuple(_coordinates(call, list(np.indices(_read_shape(call))), look_up))


def reference_read(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    return (np.asarray(arrays[0][_numpy_coordinates(call, arrays[1])]),)


def reference_write(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    result = arrays[0].copy()
    positions = _numpy_coordinates(call, arrays[1])
    step = call.attributes(DynamicScatterAttrs).step
    if step == "none":
        result[positions] = arrays[2]
    else:
        _STEPS[step][1].at(result, positions, arrays[2])
    return (result,)


def _clamped_index(
    b: Kernel, places: tir.Buffer, at: Sequence[ArithExpr | int], size: int
) -> ArithExpr:
    index = b.load_i32(places, at)
    inside = minimum(maximum(select(index < 0, index + size, index), 0), size - 1)
    return inside.cast(INDEX)


def _tir_coordinates(b: Kernel, at: Sequence[ArithExpr]) -> list[ArithExpr]:
    def look_up(name: str, index: Sequence[ArithExpr | int], size: int) -> ArithExpr:
        return b.let(name, _clamped_index(b, b.input(1), index, size))

    return _coordinates(b.call, at, look_up)


def _copied_as(dtype: DType, count: int) -> tuple[DType, int]:
    """Return type and number of the elements, words if possible, that copy `count`."""
    size = dtype.size_bytes * count
    if dtype.size_bytes < UINT32.size_bytes and size % UINT32.size_bytes == 0:
        return UINT32, size // UINT32.size_bytes
    return dtype, count


def lower_read(call: OpCall, b: Kernel) -> None:
    """Look up each index once; inner loops copy whole slices."""
    attrs = call.attributes(DynamicGatherAttrs)
    if attrs.mode == "elements":
        with b.loops("i", call.output.shape) as at:
            b.store(b.y, at, b.load(b.input(0), _tir_coordinates(b, at)))
        return
    x = call.input(0).shape
    indices = call.input(1).shape
    batch = _batch_dims(call)
    along = attrs.mode == "along"
    first = gather_axis(call) if along else batch
    tuples, named = (indices, 1) if along else (indices[:-1], indices[-1])
    batches = math.prod(x[:batch])
    before = math.prod(x[batch:first])
    size = math.prod(x[first + named :])
    count = math.prod(tuples[batch:])
    axes = x[first : first + named]
    kind, size = _copied_as(call.input(0).dtype, size)
    view = partial(b.view, dtype=kind, alignment=min(kind.size_bytes, KERNEL_ALIGNMENT))
    source = view("slices", b.input(0), 0, (batches, before, *axes, size))
    index_view = b.view("places", b.input(1), 0, (batches, count, named))
    y = view("out", b.y, 0, (batches, before, count, size), access="w")
    with (
        b.for_("batch", batches) as n,
        b.for_("outer", before) as outer,
        b.for_("i", count) as i,
    ):
        raw: list[ArithExpr] = []
        tests: list[ArithExpr] = []
        for k, length in enumerate(axes):
            raw.append(b.let("raw", b.load_i32(index_view, [n, i, k])))
            tests += [raw[k] >= 0, raw[k] < length]

        def copy(place: Sequence[ArithExpr]) -> None:
            with b.for_("c", size) as c:
                b.store(y, [n, outer, i, c], b.load(source, [n, outer, *place, c]))

        with b.if_(logical_and(*tests)):
            copy([at.cast(INDEX) for at in raw])
        with b.else_():  # rare: negative indices, and those that are limited
            limited: list[ArithExpr] = []
            for k, length in enumerate(axes):
                place = _clamped_index(b, index_view, [n, i, k], length)
                limited.append(b.let("at", place))
            copy(limited)


def lower_write(call: OpCall, b: Kernel) -> None:
    updates = b.input(2)
    step = call.attributes(DynamicScatterAttrs).step
    lower_copies(b, StridedCopy((CopyAxis(b.y.elements, 1, 1),)))
    with b.loops("u", updates.shape) as index:
        position = _tir_coordinates(b, index)
        value = b.load(updates, index)
        if step != "none":
            value = wrapped_expr(_STEPS[step][0], b.load(b.y, position), value)
        b.store(b.y, position, value)


def _update_infer(call: OpCall) -> tuple[TensorType, ...]:
    check_data_and_indices(call, 0, 2)
    x = call.input(0)
    part = call.input(1)
    start = call.input(2)
    fits = len(part.shape) == len(x.shape)
    for a, n in zip(part.shape, x.shape, strict=False):
        fits = fits and a <= n
    if part.dtype != x.dtype or not fits or start.shape != (len(x.shape),):
        raise NotSupportedError(
            f"an update of shape {list(part.shape)} in {list(x.shape)}"
        )
    return (TensorType(x.shape, x.dtype, call.output.quantization),)


def _update_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    y, part = arrays[0].copy(), arrays[1]
    room = np.array(y.shape) - np.array(part.shape)
    first = np.clip(arrays[2].astype(np.int64), 0, room)
    place = tuple(slice(a, a + n) for a, n in zip(first, part.shape, strict=True))
    y[place] = part
    return (y,)


def _update_lower(call: OpCall, b: Kernel) -> None:
    shape = call.input(0).shape
    part = call.input(1).shape
    lower_copies(b, StridedCopy((CopyAxis(b.y.elements, 1, 1),)))
    first: list[ArithExpr] = []
    for k, (n, m) in enumerate(zip(shape, part, strict=True)):
        start = clamp_index(b.load(b.input(2), [k]), n - m + 1)
        first.append(b.let(f"first{k}", start))
    with b.loops("i", part) as index:
        position = [a + i for a, i in zip(first, index, strict=True)]
        b.store(b.y, position, b.load(b.input(1), index))


def _scatter_parts(call: OpCall) -> tuple[int, int, int]:
    """Return the numbers of slices, coordinates per index and elements per slice."""
    indices = call.input(0).shape
    shape = call.attributes(ShapeAttrs).shape
    return math.prod(indices[:-1]), indices[-1], math.prod(shape[indices[-1] :])


def _scatter_infer(call: OpCall) -> tuple[TensorType, ...]:
    check_data_and_indices(call, 1, 0)
    indices = call.input(0).shape
    x = call.input(1)
    shape = call.attributes(ShapeAttrs).shape
    if not indices or not 1 <= indices[-1] <= len(shape) or x.dtype in (BOOL, INT64):
        raise NotSupportedError(f"indices of shape {list(indices)} into {list(shape)}")
    if x.shape != (*indices[:-1], *shape[indices[-1] :]):
        raise NotSupportedError(f"updates of shape {list(x.shape)} in {list(shape)}")
    return (TensorType(shape, x.dtype, call.output.quantization),)


def _scatter_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    slices, named, size = _scatter_parts(call)
    shape = call.attributes(ShapeAttrs).shape
    kind = call.output.dtype
    dtype = np.float32 if kind == FLOAT32 else np.int64
    y = np.zeros((*shape[:named], size), dtype)
    coordinates = arrays[0].reshape(slices, named)
    axes = tuple(np.clip(coordinates[:, k], 0, shape[k] - 1) for k in range(named))
    np.add.at(y, axes, arrays[1].reshape(slices, size).astype(dtype))
    return (y.reshape(shape).astype(kind.np),)


def _scatter_lower(call: OpCall, b: Kernel) -> None:
    slices, named, size = _scatter_parts(call)
    shape = call.attributes(ShapeAttrs).shape
    lower_fill(b, b.y, 0)
    x = b.view("parts", b.input(1), 0, (slices, size))
    index_view = b.view("places", b.input(0), 0, (slices, named))
    y = b.view("out", b.y, 0, (*shape[:named], size), access="rw")
    with b.for_("i", slices) as i:
        coordinates: list[ArithExpr] = []
        for k in range(named):
            index = clamp_index(b.load(index_view, [i, k]), shape[k])
            coordinates.append(b.let(f"at{k}", index))
        with b.for_("c", size) as c:
            place = [*coordinates, c]
            total = wrapped_expr("add", b.load(y, place), b.load(x, [i, c]))
            b.store(y, place, total)


def _embedding_infer(call: OpCall) -> tuple[TensorType, ...]:
    indices = call.input(0)
    table = call.input(1)
    if (indices.dtype, table.dtype) != (INT32, INT8) or len(indices.shape) != 1:
        raise NotSupportedError(
            f"an embedding of {table.dtype.name} by {indices.dtype.name}"
        )
    if call.numerics == "tflm":
        raise NotSupportedError("a hybrid operator in the tflm profile")
    quant = quantization_of(table)
    if any(quant.zero_points) or quant.axis not in (None, 0):
        raise NotSupportedError(
            "a table with a zero point, or with scales of another axis than 0"
        )
    return (TensorType((*indices.shape, *table.shape[1:]), FLOAT32),)


def _embedding_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    indices = np.clip(arrays[0], 0, len(arrays[1]) - 1)
    rows = arrays[1][indices].astype(np.float32)
    scales = np.array(quantization_of(call.input(1)).scales, np.float32)
    own = scales[indices] if len(scales) > 1 else np.repeat(scales, len(indices))
    return (rows * own.reshape(-1, *[1] * (rows.ndim - 1)),)


def _embedding_lower(call: OpCall, b: Kernel) -> None:
    count = call.input(0).shape[0]
    entries = call.input(1).shape[0]
    size = call.input(1).elements // entries
    scales = np.array(quantization_of(call.input(1)).scales)
    factors = b.constant("scales", scales, FLOAT32)
    table = b.view("table", b.input(1), 0, (entries, size))
    out = b.view("out", b.y, 0, (count, size), access="w")
    with b.for_("n", count) as n:
        entry = b.load(b.input(0), [n])
        index = b.let("index", minimum(maximum(entry, 0), entries - 1))
        with b.for_("i", size) as i:
            scale = b.load(factors, [index if len(scales) > 1 else 0])
            b.store(out, [n, i], b.load(table, [index, i]).cast(FLOAT32) * scale)


OPDEFS: tuple[OpDef, ...] = (
    OpDef("dynamic_gather", infer_read, reference_read, lower_read),
    OpDef("dynamic_scatter", infer_write, reference_write, lower_write),
    OpDef(
        "dynamic_update_slice",
        _update_infer,
        _update_reference,
        _update_lower,
    ),
    OpDef(
        "scatter_nd",
        _scatter_infer,
        _scatter_reference,
        _scatter_lower,
    ),
    OpDef(
        "hybrid_embedding_lookup",
        _embedding_infer,
        _embedding_reference,
        _embedding_lower,
    ),
)
