"""space_to_batch_nd and batch_to_space_nd: spatial blocks moved to the batch axis, and back.

`block` is the block size of each axis from 1 on; `margins` holds (before, after) added to, or
cropped from, each such axis. Each operator is one strided copy with index tables: element (y, x) of
the large tensor is at f(y) + g(x) of the small one. Added elements hold the output's zero point, or
in TFLM 0.
Semantics: TFLite's reference operators of these names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.core import Attr
from firmwright.ir.graph.op_import import ImportContext
from firmwright.ir.graph.opdef import NumericsSpec, OpCall, OpDef
from firmwright.ops.strided_copy import (
    CopyAxis,
    StridedCopy,
    constant_ints,
    data_movement_op,
    input_rank,
    row_major_strides,
)


def _attrs(context: ImportContext) -> dict[str, Attr]:
    block, margins = (constant_ints(context, k, "blocks or margins") for k in (1, 2))
    rank = input_rank(context)
    if not 1 <= len(block) < rank or len(margins) != 2 * len(block):
        raise NotSupportedError(f"{len(block)} block sizes for {rank} dimensions")
    if any(size < 1 for size in block) or any(size < 0 for size in margins):
        raise NotSupportedError(f"blocks {list(block)} with margins {list(margins)}")
    return {"block": block, "margins": margins}


def _margins(call: OpCall) -> list[tuple[int, int]]:
    flat = call.ints_attr("margins")
    return list(zip(flat[::2], flat[1::2], strict=True))


def _batch_shape(call: OpCall) -> tuple[int, ...]:
    shape, block = call.input(0).shape, call.ints_attr("block")
    cut: list[int] = []
    for n, size, (before, after) in zip(shape[1:], block, _margins(call), strict=False):
        if (before + n + after) % size:
            raise NotSupportedError(f"{before + n + after} elements in blocks of {size}")
        cut.append((before + n + after) // size)
    return (shape[0] * math.prod(block), *cut, *shape[1 + len(block) :])


def _space_shape(call: OpCall) -> tuple[int, ...]:
    shape, block = call.input(0).shape, call.ints_attr("block")
    if shape[0] % math.prod(block):
        raise NotSupportedError(f"{shape[0]} images in blocks of {math.prod(block)}")
    rows = zip(shape[1:], block, _margins(call), strict=False)
    extents = [n * size - before - after for n, size, (before, after) in rows]
    return (shape[0] // math.prod(block), *extents, *shape[1 + len(block) :])


def _block_loops(
    call: OpCall, large: Sequence[int], small: Sequence[int]
) -> list[tuple[int, int, tuple[int, ...], int]]:
    """Return, for each loop, its extent, its stride in the large tensor, and its index table.

    The index in the small tensor is the table's entry times the last element.
    """
    block, strides = call.ints_attr("block"), row_major_strides(small)
    rows: list[tuple[int, int, tuple[int, ...], int]] = []
    blocks = row_major_strides(block)
    for axis, (n, stride) in enumerate(zip(large, row_major_strides(large), strict=True)):
        if not 1 <= axis <= len(block):
            rows.append((n, stride, (), strides[axis]))
            continue
        size, before = block[axis - 1], _margins(call)[axis - 1][0]
        images = blocks[axis - 1] * large[0] * strides[0]
        offsets = [
            (k + before) % size * images + (k + before) // size * strides[axis] for k in range(n)
        ]
        unit = max(1, math.gcd(*offsets))
        rows.append((n, stride, tuple(offset // unit for offset in offsets), unit))
    return rows


def _to_batch_copies(call: OpCall) -> Sequence[StridedCopy]:
    rows = _block_loops(call, call.input(0).shape, _batch_shape(call))
    return [StridedCopy(tuple(CopyAxis(n, x, unit, (), table) for n, x, table, unit in rows))]


def _to_space_copies(call: OpCall) -> Sequence[StridedCopy]:
    rows = _block_loops(call, _space_shape(call), call.input(0).shape)
    return [StridedCopy(tuple(CopyAxis(n, unit, y, table) for n, y, table, unit in rows))]


def _zero_point(call: OpCall) -> int:
    quant = call.output.quantization
    return quant.zero_points[0] if quant is not None and call.numerics == "litert" else 0


def _fill(call: OpCall) -> float | None:
    """Return the value of added elements, or None without margins."""
    return _zero_point(call) if any(call.ints_attr("margins")) else None


def _to_batch_reference(call: OpCall, arrays: Sequence[Array]) -> Sequence[Array]:
    block, shape = call.ints_attr("block"), call.input(0).shape
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


def _to_space_reference(call: OpCall, arrays: Sequence[Array]) -> Sequence[Array]:
    block, shape = call.ints_attr("block"), call.input(0).shape
    cut, images = len(block), shape[0] // math.prod(block)
    parts = arrays[0].reshape(*block, images, *shape[1:])
    order = [cut]
    for axis in range(cut):
        order += [cut + 1 + axis, axis]
    order += range(2 * cut + 1, parts.ndim)
    extents = [n * size for n, size in zip(shape[1:], block, strict=False)]
    whole = parts.transpose(order).reshape(images, *extents, *shape[1 + cut :])
    cropped = tuple(
        slice(before, n - after) for n, (before, after) in zip(extents, _margins(call), strict=True)
    )
    return [whole[(slice(None), *cropped)]]


OPDEFS: tuple[OpDef, ...] = (
    replace(
        data_movement_op(
            "space_to_batch_nd",
            lambda call: [_batch_shape(call)],
            _to_batch_copies,
            _to_batch_reference,
            {"SPACE_TO_BATCH_ND": (3, _attrs)},
            fill=_fill,
        ),
        numerics={
            "litert": NumericsSpec(None, "copies; zero points added", "reference_ops"),
            "tflm": NumericsSpec(None, "copies; zeros added", "reference_ops"),
        },
    ),
    data_movement_op(
        "batch_to_space_nd",
        lambda call: [_space_shape(call)],
        _to_space_copies,
        _to_space_reference,
        {"BATCH_TO_SPACE_ND": (3, _attrs)},
    ),
)
