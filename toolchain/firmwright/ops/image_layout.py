"""Operators that rearrange images by strided copies or index tables.

mirror_pad adds mirrored elements around x. space_to_depth moves squares of `block` rows
and columns to channels, and depth_to_space moves them back: channel ((dy * block) + dx)
* C + c is channel c of the pixel (dy, dx) of the square.

Rows and columns of resize_nearest are computed in float32. space_to_batch_nd and
batch_to_space_nd move spatial blocks to the batch axis, and back: `block` holds the
block sizes of axis 1 and the following ones; `margins` holds (before, after) added to,
or cropped from, each of these. Element (y, x) of the large tensor has offset f(y) +
g(x) in the small one. Added elements hold the output's zero point, or in TFLM 0.
Semantics: TFLite's reference operators of these names.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph import OpCall
from firmwright.ir.graph.attributes.movement import (
    BatchSpaceAttrs,
    DepthSpaceAttrs,
    MirrorPadAttrs,
    ResizeAttrs,
)
from firmwright.ops.opdef import OpDef
from firmwright.ops.strided_copy import (
    CopyAxis,
    StridedCopy,
    copy_axes,
    data_movement_op,
    row_major_strides,
)


def _pairs(flat: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _mirrored(call: OpCall) -> list[tuple[int, int]]:
    return _pairs(call.attributes(MirrorPadAttrs).paddings)


def _margins(call: OpCall) -> list[tuple[int, int]]:
    return _pairs(call.attributes(BatchSpaceAttrs).margins)


def _mirror_shape(call: OpCall) -> tuple[int, ...]:
    rows = zip(call.input(0).shape, _mirrored(call), strict=True)
    return tuple(before + n + after for n, (before, after) in rows)


@dataclass(frozen=True, slots=True)
class _AxisPart:
    """`extent` outputs of an axis from `y_first` on, from inputs at `x_step`s."""

    extent: int
    x_first: int
    x_step: int
    y_first: int


def _mirror_parts(extent: int, before: int, after: int, skip: int) -> list[_AxisPart]:
    """Return the parts of an axis: margin before, input and margin after, if any."""
    parts = (
        _AxisPart(before, x_first=before - 1 + skip, x_step=-1, y_first=0),
        _AxisPart(extent, x_first=0, x_step=1, y_first=before),
        _AxisPart(after, x_first=extent - 1 - skip, x_step=-1, y_first=before + extent),
    )
    return [part for part in parts if part.extent]


def _copy_parts(
    parts: Sequence[_AxisPart], x_strides: Sequence[int], y_strides: Sequence[int]
) -> StridedCopy:
    """Return the copy of one part of each axis."""
    axes: list[CopyAxis] = []
    x_offset = y_offset = 0
    for part, x_stride, y_stride in zip(parts, x_strides, y_strides, strict=True):
        axes.append(CopyAxis(part.extent, part.x_step * x_stride, y_stride))
        x_offset += part.x_first * x_stride
        y_offset += part.y_first * y_stride
    return StridedCopy(tuple(axes), x_offset, y_offset)


def _mirror_copies(call: OpCall) -> Sequence[StridedCopy]:
    """Return one copy per combination of the axes' parts."""
    skip = call.attributes(MirrorPadAttrs).skip
    shape = call.input(0).shape
    x_strides = row_major_strides(shape)
    y_strides = row_major_strides(_mirror_shape(call))
    axes: list[list[_AxisPart]] = []
    for extent, (before, after) in zip(shape, _mirrored(call), strict=True):
        axes.append(_mirror_parts(extent, before, after, skip))
    copies: list[StridedCopy] = []
    for chosen in itertools.product(*axes):
        copies.append(_copy_parts(chosen, x_strides, y_strides))
    return copies


def _mirror_reference(call: OpCall, arrays: Sequence[Array]) -> Sequence[Array]:
    attrs = call.attributes(MirrorPadAttrs)
    mode: Literal["reflect", "symmetric"] = "reflect" if attrs.skip else "symmetric"
    return [np.pad(arrays[0], _mirrored(call), mode=mode)]


def _to_depth_shape(call: OpCall) -> tuple[int, ...]:
    (n, h, w, c), block = call.input(0).shape, call.attributes(DepthSpaceAttrs).block
    if h % block or w % block:
        raise NotSupportedError(f"{h}x{w} pixels in blocks of {block}")
    return (n, h // block, w // block, c * block * block)


def _to_space_shape(call: OpCall) -> tuple[int, ...]:
    (n, h, w, c), block = call.input(0).shape, call.attributes(DepthSpaceAttrs).block
    if c % (block * block):
        raise NotSupportedError(f"{c} channels in blocks of {block}")
    return (n, h * block, w * block, c // (block * block))


def _blocks(
    call: OpCall, deep: Sequence[int], flat: Sequence[int]
) -> list[tuple[int, int, int]]:
    """Return extent, stride in the flat and in the deep tensor for the six loops."""
    block, (n, h, w, _), c = call.attributes(DepthSpaceAttrs).block, deep, flat[3]
    f = row_major_strides(flat)
    d = row_major_strides(deep)
    return [
        (n, f[0], d[0]),
        (h, block * f[1], d[1]),
        (block, f[1], block * c),
        (w, block * f[2], d[2]),
        (block, f[2], c),
        (c, 1, 1),
    ]


def _to_depth_copies(call: OpCall) -> Sequence[StridedCopy]:
    rows = _blocks(call, _to_depth_shape(call), call.input(0).shape)
    axes = tuple(CopyAxis(extent, flat, deep) for extent, flat, deep in rows)
    return [StridedCopy(axes)]


def _to_space_copies(call: OpCall) -> Sequence[StridedCopy]:
    rows = _blocks(call, call.input(0).shape, _to_space_shape(call))
    axes = tuple(CopyAxis(extent, deep, flat) for extent, flat, deep in rows)
    return [StridedCopy(axes)]


def _to_depth_reference(call: OpCall, arrays: Sequence[Array]) -> Sequence[Array]:
    (n, h, w, c), block = arrays[0].shape, call.attributes(DepthSpaceAttrs).block
    split = arrays[0].reshape(n, h // block, block, w // block, block, c)
    return [split.transpose(0, 1, 3, 2, 4, 5).reshape(_to_depth_shape(call))]


def _to_space_reference(call: OpCall, arrays: Sequence[Array]) -> Sequence[Array]:
    (n, h, w, c), block = arrays[0].shape, call.attributes(DepthSpaceAttrs).block
    split = arrays[0].reshape(n, h, w, block, block, c // (block * block))
    return [split.transpose(0, 1, 3, 2, 4, 5).reshape(_to_space_shape(call))]


def _nearest_shape(call: OpCall) -> tuple[int, ...]:
    n, _, _, c = call.input(0).shape
    return (n, *call.attributes(ResizeAttrs).size, c)


def _nearest_indices(call: OpCall, axis: int) -> tuple[int, ...]:
    attrs = call.attributes(ResizeAttrs)
    inputs = call.input(0).shape[1 + axis]
    outputs = attrs.size[axis]
    corners = attrs.align_corners
    offset = np.float32(0.5 if attrs.half_pixel_centers else 0)
    scale = np.float32(inputs) / np.float32(outputs)
    if corners and outputs > 1:
        scale = np.float32(inputs - 1) / np.float32(outputs - 1)
    positions = (np.arange(outputs).astype(np.float32) + offset) * scale
    rounded = np.floor(positions + np.float32(0.5)) if corners else np.floor(positions)
    return tuple(int(k) for k in np.clip(rounded, 0, inputs - 1))


def _nearest_copies(call: OpCall) -> Sequence[StridedCopy]:
    axes = list(copy_axes(_nearest_shape(call), row_major_strides(call.input(0).shape)))
    for axis in (0, 1):
        axes[1 + axis] = replace(axes[1 + axis], table=_nearest_indices(call, axis))
    return [StridedCopy(tuple(axes))]


def _batch_shape(call: OpCall) -> tuple[int, ...]:
    shape = call.input(0).shape
    block = call.attributes(BatchSpaceAttrs).block
    cut: list[int] = []
    for n, size, (before, after) in zip(shape[1:], block, _margins(call), strict=False):
        padded = before + n + after
        if padded % size:
            raise NotSupportedError(f"{padded} elements in blocks of {size}")
        cut.append(padded // size)
    return (shape[0] * math.prod(block), *cut, *shape[1 + len(block) :])


def _space_shape(call: OpCall) -> tuple[int, ...]:
    shape = call.input(0).shape
    block = call.attributes(BatchSpaceAttrs).block
    if shape[0] % math.prod(block):
        raise NotSupportedError(f"{shape[0]} images in blocks of {math.prod(block)}")
    rows = zip(shape[1:], block, _margins(call), strict=False)
    extents = [n * size - before - after for n, size, (before, after) in rows]
    return (shape[0] // math.prod(block), *extents, *shape[1 + len(block) :])


def _block_loops(
    call: OpCall, large: Sequence[int], small: Sequence[int]
) -> list[tuple[int, int, tuple[int, ...], int]]:
    """Return (extent, stride in the large tensor, index table, unit) for each loop.

    The offset in the small tensor is the table's entry, or else the index, times the
    unit.
    """
    block = call.attributes(BatchSpaceAttrs).block
    strides = row_major_strides(small)
    rows: list[tuple[int, int, tuple[int, ...], int]] = []
    blocks = row_major_strides(block)
    pairs = zip(large, row_major_strides(large), strict=True)
    for axis, (n, stride) in enumerate(pairs):
        if not 1 <= axis <= len(block):
            rows.append((n, stride, (), strides[axis]))
            continue
        size = block[axis - 1]
        before = _margins(call)[axis - 1][0]
        images = blocks[axis - 1] * large[0] * strides[0]
        offsets: list[int] = []
        for k in range(before, before + n):
            offsets.append(k % size * images + k // size * strides[axis])
        unit = max(1, math.gcd(*offsets))
        rows.append((n, stride, tuple(offset // unit for offset in offsets), unit))
    return rows


def _to_batch_copies(call: OpCall) -> Sequence[StridedCopy]:
    rows = _block_loops(call, call.input(0).shape, _batch_shape(call))
    axes = tuple(CopyAxis(n, x, unit, (), table) for n, x, table, unit in rows)
    return [StridedCopy(axes)]


def _batch_to_space_copies(call: OpCall) -> Sequence[StridedCopy]:
    rows = _block_loops(call, _space_shape(call), call.input(0).shape)
    axes = tuple(CopyAxis(n, unit, y, table) for n, y, table, unit in rows)
    return [StridedCopy(axes)]


def _zero_point(call: OpCall) -> int:
    quant = call.output.quantization
    return quant.zero_points[0] if quant is not None and call.numerics != "tflm" else 0


def _to_batch_reference(call: OpCall, arrays: Sequence[Array]) -> Sequence[Array]:
    block = call.attributes(BatchSpaceAttrs).block
    shape = call.input(0).shape
    cut = len(block)
    widths = [(0, 0), *_margins(call), *[(0, 0)] * (len(shape) - cut - 1)]
    padded = np.pad(arrays[0], widths, constant_values=_zero_point(call))
    split: list[int] = [shape[0]]
    for n, size in zip(padded.shape[1:], block, strict=False):
        split += [n // size, size]
    parts = padded.reshape(*split, *shape[1 + cut :])
    order = [*range(2, 2 * cut + 1, 2), 0, *range(1, 2 * cut, 2)]
    order += range(2 * cut + 1, parts.ndim)
    return [parts.transpose(order).reshape(_batch_shape(call))]


def _batch_to_space_reference(call: OpCall, arrays: Sequence[Array]) -> Sequence[Array]:
    block = call.attributes(BatchSpaceAttrs).block
    shape = call.input(0).shape
    cut = len(block)
    images = shape[0] // math.prod(block)
    parts = arrays[0].reshape(*block, images, *shape[1:])
    order = [cut]
    for axis in range(cut):
        order += [cut + 1 + axis, axis]
    order += range(2 * cut + 1, parts.ndim)
    extents = [n * size for n, size in zip(shape[1:], block, strict=False)]
    whole = parts.transpose(order).reshape(images, *extents, *shape[1 + cut :])
    place = [slice(None)]
    for n, (before, after) in zip(extents, _margins(call), strict=True):
        place.append(slice(before, n - after))
    return [whole[tuple(place)]]


def _nearest_reference(call: OpCall, arrays: Sequence[Array]) -> Sequence[Array]:
    rows = _nearest_indices(call, 0)
    columns = _nearest_indices(call, 1)
    return [arrays[0][:, rows][:, :, columns]]


def _batch_fill(call: OpCall) -> float | None:
    has_margins = any(call.attributes(BatchSpaceAttrs).margins)
    return _zero_point(call) if has_margins else None


OPDEFS: tuple[OpDef, ...] = (
    data_movement_op(
        "mirror_pad",
        _mirror_shape,
        _mirror_copies,
        _mirror_reference,
    ),
    data_movement_op(
        "space_to_depth",
        _to_depth_shape,
        _to_depth_copies,
        _to_depth_reference,
    ),
    data_movement_op(
        "depth_to_space",
        _to_space_shape,
        _to_space_copies,
        _to_space_reference,
    ),
    data_movement_op(
        "resize_nearest",
        _nearest_shape,
        _nearest_copies,
        _nearest_reference,
    ),
    data_movement_op(
        "space_to_batch_nd",
        _batch_shape,
        _to_batch_copies,
        _to_batch_reference,
        _batch_fill,
    ),
    data_movement_op(
        "batch_to_space_nd",
        _space_shape,
        _batch_to_space_copies,
        _batch_to_space_reference,
    ),
)
