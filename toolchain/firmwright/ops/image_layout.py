"""mirror_pad, space_to_depth, depth_to_space and resize_nearest as strided copies.

Mirrored margins are separate copies with negative strides. Nearest rows and columns are tables,
computed in float32 as in TFLite.
Semantics: TFLite's reference operators of these names.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.core import Attr
from firmwright.ir.graph.op_import import ImportContext
from firmwright.ir.graph.opdef import OpCall, OpDef
from firmwright.ops.strided_copy import (
    CopyAxis,
    StridedCopy,
    constant_ints,
    copy_axes,
    data_movement_op,
    input_rank,
    row_major_strides,
)

# ---- mirror_pad --------------------------------------------------------------------------------


def _mirror_attrs(context: ImportContext) -> dict[str, Attr]:
    x = context.inputs[0]
    assert x is not None  # ensured by require_inputs
    flat = constant_ints(context, 1, "paddings")
    skip = int(context.node.options["mode"] == "REFLECT")
    pairs = list(zip(flat[::2], flat[1::2], strict=True))
    if len(pairs) != len(x.shape) or any(
        not 0 <= p <= n - skip for pair, n in zip(pairs, x.shape, strict=True) for p in pair
    ):
        raise NotSupportedError("a mirrored margin wider than the input")
    return {"paddings": flat, "skip": skip}


def _margins(call: OpCall) -> list[tuple[int, int]]:
    flat = call.ints_attr("paddings")
    return list(zip(flat[::2], flat[1::2], strict=True))


def _mirror_shape(call: OpCall) -> tuple[int, ...]:
    return tuple(a + n + z for n, (a, z) in zip(call.input(0).shape, _margins(call), strict=True))


def _mirror_copies(call: OpCall) -> Sequence[StridedCopy]:
    """Return the copies for all combinations of the parts (count, x start, x step, y start)."""
    skip, shape = call.int_attr("skip"), call.input(0).shape
    x_strides, y_strides = row_major_strides(shape), row_major_strides(_mirror_shape(call))
    parts = [
        [
            part
            for part in (
                (before, before - 1 + skip, -1, 0),
                (n, 0, 1, before),
                (after, n - 1 - skip, -1, before + n),
            )
            if part[0]
        ]
        for n, (before, after) in zip(shape, _margins(call), strict=True)
    ]
    return [
        StridedCopy(
            tuple(
                CopyAxis(count, step * x, y)
                for (count, _, step, _), x, y in zip(chosen, x_strides, y_strides, strict=True)
            ),
            sum(first * x for (_, first, _, _), x in zip(chosen, x_strides, strict=True)),
            sum(first * y for (_, _, _, first), y in zip(chosen, y_strides, strict=True)),
        )
        for chosen in itertools.product(*parts)
    ]


def _mirror_reference(call: OpCall, arrays: Sequence[Array]) -> Sequence[Array]:
    mode: Literal["reflect", "symmetric"] = "reflect" if call.int_attr("skip") else "symmetric"
    return [np.pad(arrays[0], _margins(call), mode=mode)]


# ---- blocks and nearest neighbors --------------------------------------------------------------


def _block_attrs(context: ImportContext) -> dict[str, Attr]:
    block = context.node.options["block_size"]
    if input_rank(context) != 4 or not isinstance(block, int) or block < 1:
        raise NotSupportedError(f"blocks of size {block} in {input_rank(context)} dimensions")
    return {"block": block}


def _to_depth_shape(call: OpCall) -> tuple[int, ...]:
    (n, h, w, c), block = call.input(0).shape, call.int_attr("block")
    if h % block or w % block:
        raise NotSupportedError(f"{h}x{w} pixels in blocks of {block}")
    return (n, h // block, w // block, c * block * block)


def _to_space_shape(call: OpCall) -> tuple[int, ...]:
    (n, h, w, c), block = call.input(0).shape, call.int_attr("block")
    if c % (block * block):
        raise NotSupportedError(f"{c} channels in blocks of {block}")
    return (n, h * block, w * block, c // (block * block))


def _block_axes(
    call: OpCall, deep: Sequence[int], flat: Sequence[int]
) -> list[tuple[int, int, int]]:
    """Return (extent, stride in the flat tensor, stride in the deep tensor) for the six loops."""
    block, (n, h, w, _), c = call.int_attr("block"), deep, flat[3]
    f, d = row_major_strides(flat), row_major_strides(deep)
    return [
        (n, f[0], d[0]), (h, block * f[1], d[1]), (block, f[1], block * c),
        (w, block * f[2], d[2]), (block, f[2], c), (c, 1, 1),
    ]  # fmt: skip


def _to_depth_copies(call: OpCall) -> Sequence[StridedCopy]:
    rows = _block_axes(call, _to_depth_shape(call), call.input(0).shape)
    return [StridedCopy(tuple(CopyAxis(extent, flat, deep) for extent, flat, deep in rows))]


def _to_space_copies(call: OpCall) -> Sequence[StridedCopy]:
    rows = _block_axes(call, call.input(0).shape, _to_space_shape(call))
    return [StridedCopy(tuple(CopyAxis(extent, deep, flat) for extent, flat, deep in rows))]


def _to_depth_reference(call: OpCall, arrays: Sequence[Array]) -> Sequence[Array]:
    (n, h, w, c), block = arrays[0].shape, call.int_attr("block")
    split = arrays[0].reshape(n, h // block, block, w // block, block, c)
    return [split.transpose(0, 1, 3, 2, 4, 5).reshape(_to_depth_shape(call))]


def _to_space_reference(call: OpCall, arrays: Sequence[Array]) -> Sequence[Array]:
    (n, h, w, c), block = arrays[0].shape, call.int_attr("block")
    split = arrays[0].reshape(n, h, w, block, block, c // (block * block))
    return [split.transpose(0, 1, 3, 2, 4, 5).reshape(_to_space_shape(call))]


def _nearest_attrs(context: ImportContext) -> dict[str, Attr]:
    options = context.node.options
    if input_rank(context) != 4:
        raise NotSupportedError(f"an image of {input_rank(context)} dimensions")
    return {
        "size": constant_ints(context, 1, "sizes"),
        "align_corners": bool(options["align_corners"]),
        "half_pixel_centers": bool(options["half_pixel_centers"]),
    }


def _nearest_shape(call: OpCall) -> tuple[int, ...]:
    n, _, _, c = call.input(0).shape
    return (n, *call.ints_attr("size"), c)


def _nearest_indices(call: OpCall, axis: int) -> tuple[int, ...]:
    inputs, outputs = call.input(0).shape[1 + axis], call.ints_attr("size")[axis]
    corners = bool(call.attrs["align_corners"])
    offset = np.float32(0.5 if call.attrs["half_pixel_centers"] else 0)
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


def _nearest_reference(call: OpCall, arrays: Sequence[Array]) -> Sequence[Array]:
    return [arrays[0][:, _nearest_indices(call, 0)][:, :, _nearest_indices(call, 1)]]


# ---- the operators -----------------------------------------------------------------------------

OPDEFS: tuple[OpDef, ...] = (
    data_movement_op(
        "mirror_pad",
        lambda call: [_mirror_shape(call)],
        _mirror_copies,
        _mirror_reference,
        {"MIRROR_PAD": (2, _mirror_attrs)},
    ),
    data_movement_op(
        "space_to_depth",
        lambda call: [_to_depth_shape(call)],
        _to_depth_copies,
        _to_depth_reference,
        {"SPACE_TO_DEPTH": (1, _block_attrs)},
    ),
    data_movement_op(
        "depth_to_space",
        lambda call: [_to_space_shape(call)],
        _to_space_copies,
        _to_space_reference,
        {"DEPTH_TO_SPACE": (1, _block_attrs)},
    ),
    data_movement_op(
        "resize_nearest",
        lambda call: [_nearest_shape(call)],
        _nearest_copies,
        _nearest_reference,
        {"RESIZE_NEAREST_NEIGHBOR": (2, _nearest_attrs)},
    ),
)
