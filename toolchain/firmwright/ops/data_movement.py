"""Operators that only reorder, select or repeat elements, as strided copies.

    transpose: axis i of y is axis perm[i] of x.
    strided_slice: along each axis, `counts` elements from `begin`, `strides` apart;
        axes in `shrunk` are dropped.
    split: parts of the lengths `sizes` along `axis`.
    pack, unpack: tensors as slices of a new axis, and the slices of an axis.
    gather: constant `indices` along `axis`, replaced by the axes `shape`.
    tile: `multiples` copies along each axis.
    broadcast_to: axes of length 1 repeated to `shape`, aligned at the last axis.
    reverse_v2: `axes` in reverse order.

TFLite's constant inputs (permutations, begins, multiples...) are attributes here; axes
count from 0. Semantics: TFLite's reference operators of these names.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph import OpCall
from firmwright.ir.graph.attributes.movement import (
    AxisAttrs,
    BroadcastAttrs,
    GatherAttrs,
    ReverseAttrs,
    SplitAttrs,
    StridedSliceAttrs,
    TileAttrs,
    TransposeAttrs,
)
from firmwright.ops.opdef import OpDef
from firmwright.ops.strided_copy import (
    CopyAxis,
    StridedCopy,
    checked_axis,
    copy_axes,
    data_movement_op,
    row_major_strides,
)


def _transposed_shape(call: OpCall) -> tuple[int, ...]:
    shape = call.input(0).shape
    perm = call.attributes(TransposeAttrs).perm
    if sorted(perm) != list(range(len(shape))):
        raise NotSupportedError(f"{list(perm)} are not the axes of {len(shape)}")
    return tuple(shape[axis] for axis in perm)


def _transpose_copies(call: OpCall) -> Sequence[StridedCopy]:
    strides = row_major_strides(call.input(0).shape)
    permuted = [strides[axis] for axis in call.attributes(TransposeAttrs).perm]
    return [StridedCopy(copy_axes(_transposed_shape(call), permuted))]


def checked_slice(
    shape: Sequence[int],
    begin: Sequence[int],
    strides: Sequence[int],
    counts: Sequence[int],
    shrunk: Sequence[int],
) -> StridedSliceAttrs:
    """Return the attributes of a slice; NotSupportedError if it leaves the shape."""
    if not len(begin) == len(strides) == len(counts) == len(shape):
        raise NotSupportedError(f"a slice along {len(begin)} of {len(shape)} axes")
    for n, first, step, count in zip(shape, begin, strides, counts, strict=True):
        last = first + step * (count - 1)
        if count < 1 or not (0 <= first < n and 0 <= last < n):
            raise NotSupportedError(
                f"a slice of {count} elements from {first} in an axis of {n}"
            )
    return StridedSliceAttrs(
        begin=tuple(begin),
        strides=tuple(strides),
        counts=tuple(counts),
        shrunk=tuple(shrunk),
    )


def _slice_shape(call: OpCall) -> tuple[int, ...]:
    attrs = call.attributes(StridedSliceAttrs)
    checked_slice(
        call.input(0).shape, attrs.begin, attrs.strides, attrs.counts, attrs.shrunk
    )
    return tuple(n for axis, n in enumerate(attrs.counts) if axis not in attrs.shrunk)


def _slice_copies(call: OpCall) -> Sequence[StridedCopy]:
    attrs = call.attributes(StridedSliceAttrs)
    strides = row_major_strides(call.input(0).shape)
    first, steps = 0, []
    for stride, step, begin in zip(strides, attrs.strides, attrs.begin, strict=True):
        first += stride * begin
        steps.append(stride * step)
    return [StridedCopy(copy_axes(attrs.counts, steps), first)]


def _slice_reference(call: OpCall, arrays: Sequence[Array]) -> Sequence[Array]:
    attrs = call.attributes(StridedSliceAttrs)
    selected = arrays[0]
    rows = zip(attrs.begin, attrs.strides, attrs.counts, strict=True)
    for axis, (first, step, count) in enumerate(rows):
        places = [first + step * k for k in range(count)]
        selected = np.take(selected, places, axis=axis)
    return [selected.reshape(_slice_shape(call))]


def _split_shapes(call: OpCall) -> list[tuple[int, ...]]:
    attrs = call.attributes(SplitAttrs)
    shape = call.input(0).shape
    axis = checked_axis(attrs.axis, len(shape))
    if sum(attrs.sizes) != shape[axis]:
        raise NotSupportedError(
            f"{shape[axis]} elements split into {list(attrs.sizes)}"
        )
    return [(*shape[:axis], n, *shape[axis + 1 :]) for n in attrs.sizes]


def _split_copies(call: OpCall) -> Sequence[StridedCopy]:
    strides = row_major_strides(call.input(0).shape)
    axis = call.attributes(AxisAttrs).axis
    first, copies = 0, []
    for result, shape in enumerate(_split_shapes(call)):
        axes = copy_axes(shape, strides)
        copies.append(StridedCopy(axes, first * strides[axis], result=result))
        first += shape[axis]
    return copies


def _split_reference(call: OpCall, arrays: Sequence[Array]) -> Sequence[Array]:
    attrs = call.attributes(SplitAttrs)
    ends = np.cumsum(attrs.sizes)[:-1]
    return np.split(arrays[0], ends, axis=attrs.axis)


def _pack_shape(call: OpCall) -> tuple[int, ...]:
    shape = call.input(0).shape
    axis = checked_axis(call.attributes(AxisAttrs).axis, len(shape) + 1)
    if not all(kind is not None and kind.shape == shape for kind in call.inputs):
        raise NotSupportedError("inputs of different shapes")
    return (*shape[:axis], len(call.inputs), *shape[axis:])


def _other_strides(strides: Sequence[int], axis: int) -> list[int]:
    return [stride for k, stride in enumerate(strides) if k != axis]


def _pack_copies(call: OpCall) -> Sequence[StridedCopy]:
    axis = call.attributes(AxisAttrs).axis
    shape = call.input(0).shape
    strides = row_major_strides(_pack_shape(call))
    others = _other_strides(strides, axis)
    axes = tuple(map(CopyAxis, shape, row_major_strides(shape), others))
    copies: list[StridedCopy] = []
    for source in range(len(call.inputs)):
        copies.append(StridedCopy(axes, 0, source * strides[axis], source=source))
    return copies


def _unpack_shapes(call: OpCall) -> list[tuple[int, ...]]:
    shape = call.input(0).shape
    axis = checked_axis(call.attributes(AxisAttrs).axis, len(shape))
    return [(*shape[:axis], *shape[axis + 1 :])] * shape[axis]


def _unpack_copies(call: OpCall) -> Sequence[StridedCopy]:
    axis = call.attributes(AxisAttrs).axis
    strides = row_major_strides(call.input(0).shape)
    others = _other_strides(strides, axis)
    copies: list[StridedCopy] = []
    for result, shape in enumerate(_unpack_shapes(call)):
        axes = copy_axes(shape, others)
        copies.append(StridedCopy(axes, result * strides[axis], result=result))
    return copies


def _gather_shape(call: OpCall) -> tuple[int, ...]:
    attrs = call.attributes(GatherAttrs)
    shape = call.input(0).shape
    axis = checked_axis(attrs.axis, len(shape))
    least, most = min(attrs.indices, default=0), max(attrs.indices, default=0)
    is_inside = least >= 0 and most < shape[axis]
    if not is_inside or math.prod(attrs.shape) != len(attrs.indices):
        raise NotSupportedError(
            f"{list(attrs.shape)} indices of {shape[axis]} elements"
        )
    return (*shape[:axis], *attrs.shape, *shape[axis + 1 :])


def _gather_copies(call: OpCall) -> Sequence[StridedCopy]:
    attrs = call.attributes(GatherAttrs)
    axis = attrs.axis
    shape = call.input(0).shape
    indices = attrs.indices
    extents = (*shape[:axis], len(indices), *shape[axis + 1 :])
    axes = list(copy_axes(extents, row_major_strides(shape)))
    stride = axes[axis].x_stride
    steps = {after - index for index, after in pairwise(indices)} or {0}
    if len(steps) > 1:
        axes[axis] = replace(axes[axis], table=indices)
        return [StridedCopy(tuple(axes))]
    axes[axis] = replace(axes[axis], x_stride=stride * steps.pop())
    return [StridedCopy(tuple(axes), x_offset=indices[0] * stride)]


def _gather_reference(call: OpCall, arrays: Sequence[Array]) -> Sequence[Array]:
    attrs = call.attributes(GatherAttrs)
    selected = np.take(arrays[0], attrs.indices, axis=attrs.axis)
    return [selected.reshape(_gather_shape(call))]


def _tile_copies(call: OpCall) -> Sequence[StridedCopy]:
    attrs = call.attributes(TileAttrs)
    shape = call.input(0).shape
    strides = row_major_strides(call.input(0).shape)
    y_strides = row_major_strides(call.output.shape)
    axes: list[CopyAxis] = []
    for times, n, x, y in zip(attrs.multiples, shape, strides, y_strides, strict=True):
        axes += [CopyAxis(times, 0, n * y), CopyAxis(n, x, y)]
    return [StridedCopy(tuple(axes))]


def _tile_shape(call: OpCall) -> tuple[int, ...]:
    shape = call.input(0).shape
    multiples = call.attributes(TileAttrs).multiples
    if len(shape) != len(multiples):
        raise NotSupportedError(
            f"{len(multiples)} multiples of {len(shape)} dimensions"
        )
    return tuple(a * b for a, b in zip(shape, multiples, strict=True))


def _aligned_shape(call: OpCall) -> tuple[int, ...]:
    shape = call.input(0).shape
    target = call.attributes(BroadcastAttrs).shape
    aligned = (1,) * (len(target) - len(shape)) + tuple(shape)
    fits = len(aligned) == len(target)
    for a, n in zip(aligned, target, strict=False):
        fits = fits and a in (1, n)
    if not fits:
        raise NotSupportedError(f"{list(shape)} cannot be broadcast to {list(target)}")
    return aligned


def _broadcast_shape(call: OpCall) -> tuple[int, ...]:
    _aligned_shape(call)
    return call.attributes(BroadcastAttrs).shape


def _broadcast_copies(call: OpCall) -> Sequence[StridedCopy]:
    aligned = _aligned_shape(call)
    strides: list[int] = []
    for n, stride in zip(aligned, row_major_strides(aligned), strict=True):
        strides.append(0 if n == 1 else stride)
    return [StridedCopy(copy_axes(call.attributes(BroadcastAttrs).shape, strides))]


def _reversed_shape(call: OpCall) -> tuple[int, ...]:
    shape = call.input(0).shape
    axes = call.attributes(ReverseAttrs).axes
    for axis in axes:
        checked_axis(axis, len(shape))
    return shape


def _reverse_copies(call: OpCall) -> Sequence[StridedCopy]:
    shape = call.input(0).shape
    axes = call.attributes(ReverseAttrs).axes
    strides = row_major_strides(shape)
    first = sum((shape[axis] - 1) * strides[axis] for axis in axes)
    steps = list(strides)
    for axis in set(axes):
        steps[axis] = -steps[axis]
    return [StridedCopy(copy_axes(shape, steps), first)]


OPDEFS: tuple[OpDef, ...] = (
    data_movement_op(
        "transpose",
        _transposed_shape,
        _transpose_copies,
        lambda call, arrays: [
            arrays[0].transpose(call.attributes(TransposeAttrs).perm)
        ],
    ),
    data_movement_op(
        "strided_slice",
        _slice_shape,
        _slice_copies,
        _slice_reference,
    ),
    data_movement_op(
        "split",
        _split_shapes,
        _split_copies,
        _split_reference,
    ),
    data_movement_op(
        "pack",
        _pack_shape,
        _pack_copies,
        lambda call, arrays: [np.stack(arrays, axis=call.attributes(AxisAttrs).axis)],
    ),
    data_movement_op(
        "unpack",
        _unpack_shapes,
        _unpack_copies,
        lambda call, arrays: list(
            np.moveaxis(arrays[0], call.attributes(AxisAttrs).axis, 0)
        ),
    ),
    data_movement_op(
        "gather",
        _gather_shape,
        _gather_copies,
        _gather_reference,
    ),
    data_movement_op(
        "tile",
        _tile_shape,
        _tile_copies,
        lambda call, arrays: [np.tile(arrays[0], call.attributes(TileAttrs).multiples)],
    ),
    data_movement_op(
        "broadcast_to",
        _broadcast_shape,
        _broadcast_copies,
        lambda call, arrays: [
            np.broadcast_to(arrays[0], call.attributes(BroadcastAttrs).shape)
        ],
    ),
    data_movement_op(
        "reverse_v2",
        _reversed_shape,
        _reverse_copies,
        lambda call, arrays: [np.flip(arrays[0], call.attributes(ReverseAttrs).axes)],
    ),
)
