"""Data movement and shape operators; results of shapes alone become constants."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np

from firmwright.base.dtypes import find_dtype
from firmwright.base.errors import NotSupportedError
from firmwright.base.rounding import divide_up
from firmwright.frontends.axes import normalize_axis
from firmwright.frontends.onnx.node_context import (
    ConstantValue,
    Importer,
    NodeContext,
    OnnxValue,
    Results,
    supported_dtype,
    vector_shape,
)
from firmwright.frontends.onnx.protobuf import dtype_name
from firmwright.ir.graph.attributes.movement import PadAttrs, TileAttrs


def _reshape(c: NodeContext) -> OnnxValue:
    shape, sizes = c.shape(0), list(c.ints(1, "shapes"))
    if not c.attr("allowzero", 0):
        sizes = [shape[axis] if n == 0 else n for axis, n in enumerate(sizes)]
    elements = math.prod(shape)
    known_elements = math.prod(n for n in sizes if n != -1)
    rest = elements // max(known_elements, 1)
    sizes = [rest if n == -1 else n for n in sizes]
    if math.prod(sizes) != elements:
        raise NotSupportedError(f"{list(shape)} cannot take the shape {sizes}")
    return c.emit.reshape(c.input(0), sizes)


def _flatten(c: NodeContext) -> OnnxValue:
    shape, axis = c.shape(0), int(c.attr("axis", 1))
    axis = axis + len(shape) if axis < 0 else axis
    rows = math.prod(shape[:axis])
    columns = math.prod(shape[axis:])
    return c.emit.reshape(c.input(0), (rows, columns))


def _axes(c: NodeContext, index: int, rank: int) -> tuple[int, ...] | None:
    if not c.has(index):
        return None
    axes = c.ints(index, "axes")
    if any(not -rank <= axis < rank for axis in axes):
        raise NotSupportedError(f"axes {list(axes)} of {rank} dimensions")
    return tuple(axis % rank for axis in axes)


def _squeeze(c: NodeContext) -> OnnxValue:
    shape = c.shape(0)
    axes = _axes(c, 1, len(shape))
    if axes is None:
        axes = tuple(axis for axis, n in enumerate(shape) if n == 1)
    if any(shape[axis] != 1 for axis in axes):
        raise NotSupportedError(
            f"axes {list(axes)} of {list(shape)}, which are not of one element"
        )
    kept = [n for axis, n in enumerate(shape) if axis not in axes]
    return c.emit.reshape(c.input(0), kept)


def _unsqueeze(c: NodeContext) -> OnnxValue:
    rank = c.rank + len(c.ints(1, "axes"))
    axes, remaining = _axes(c, 1, rank) or (), iter(c.shape(0))
    if len(set(axes)) != len(axes):
        raise NotSupportedError(f"axes {list(axes)}, one of them twice")
    shape = [1 if axis in axes else next(remaining) for axis in range(rank)]
    return c.emit.reshape(c.input(0), shape)


def _bit_cast(c: NodeContext) -> OnnxValue:
    before = c.dtype(0)
    after = supported_dtype(dtype_name(int(c.attr("to", 0))))
    is_stored = before.computed_as or after.computed_as
    if is_stored or before.size_bytes != after.size_bytes:
        raise NotSupportedError(f"the bits of {before.name} as {after.name}")
    if not (before.is_float or after.is_float):
        return c.emit.cast(c.input(0), after)
    return c.emit.expression(f"{after.name}_of_bits(a)", c.input(0))


def _shape(c: NodeContext) -> OnnxValue:
    extents = c.shape(0)[slice(c.attr("start", 0), c.attr("end", c.rank))]
    return c.emit.const(np.array(extents, np.int64), "shape")


def _eye_like(c: NodeContext) -> OnnxValue:
    shape = c.shape(0)
    name = dtype_name(c.attr("dtype")) if c.attr("dtype") else c.dtype(0).name
    dtype = find_dtype(name)
    if dtype is None or len(shape) != 2:
        raise NotSupportedError(f"an identity of {name} and shape {list(shape)}")
    return c.emit.const(np.eye(*shape, k=int(c.attr("k", 0)), dtype=dtype.np), "eye")


def _trilu(c: NodeContext) -> OnnxValue:
    shift = int(c.scalar(1, "diagonals")) if c.has(1) else 0
    ones = np.ones(c.shape(0)[-2:], bool)
    mask = np.triu(ones, shift) if c.attr("upper", 1) else np.tril(ones, shift)
    formula = f"where(b, a, {c.dtype(0).name}(0))"
    return c.emit.expression(formula, c.input(0), c.emit.const(mask, "mask"))


def _expand(c: NodeContext) -> OnnxValue:
    shape = np.broadcast_shapes(c.shape(0), c.ints(1, "shapes"))
    return c.emit.broadcast(c.input(0), shape)


def _transpose(c: NodeContext) -> OnnxValue:
    perm = c.attr("perm", tuple(reversed(range(c.rank))))
    if sorted(perm) != list(range(c.rank)):
        raise NotSupportedError(f"axes {list(perm)} of {c.rank} dimensions")
    return c.emit.transpose(c.input(0), perm)


def _concat(c: NodeContext) -> OnnxValue:
    axis, parts = c.axis(), c.all_inputs()
    filled = [part for part in parts if math.prod(part.shape)]
    return c.emit.concat(filled or parts[:1], axis)


def _split(c: NodeContext) -> Results:
    axis, shape, count = c.axis(0), c.shape(0), len(c.outputs)
    if c.has(1):
        sizes = c.ints(1, "sizes")
    else:
        # Equal parts; the last one is shorter if the size is not divisible.
        part = divide_up(shape[axis], int(c.attr("num_outputs", count)))
        sizes = tuple(min(part, shape[axis] - part * k) for k in range(count))
    if sum(sizes) != shape[axis] or len(sizes) != count:
        raise NotSupportedError(f"{shape[axis]} elements split into {list(sizes)}")
    if count == 1:
        return [c.input(0)]
    if 0 in sizes:
        return _split_with_empty_parts(c, axis, sizes)
    whole = c.emit.value(c.input(0)).type
    kinds = []
    for size in sizes:
        extents = (*shape[:axis], size, *shape[axis + 1 :])
        kinds.append(replace(whole, shape=extents))
    return c.emit.split(c.input(0), axis, sizes, kinds)


def _empty_tensor(c: NodeContext, shape: Sequence[int]) -> OnnxValue:
    return c.emit.const(np.zeros(shape, c.dtype(0).np), "empty")


def _split_with_empty_parts(c: NodeContext, axis: int, sizes: Sequence[int]) -> Results:
    shape, first, parts = c.shape(0), 0, []
    for size in sizes:
        if size:
            parts.append(c.emit.slice_axis(c.input(0), axis, first, size))
        else:
            parts.append(_empty_tensor(c, (*shape[:axis], 0, *shape[axis + 1 :])))
        first += size
    return parts


def _slice(c: NodeContext) -> OnnxValue:
    shape = c.shape(0)
    starts, ends = c.ints(1, "starts"), c.ints(2, "ends")
    axes = _axes(c, 3, len(shape)) or tuple(range(len(starts)))
    steps = c.ints(4, "steps") if c.has(4) else (1,) * len(starts)
    begin = [0] * len(shape)
    counts = list(shape)
    strides = [1] * len(shape)
    for axis, first, last, step in zip(axes, starts, ends, steps, strict=True):
        selected = range(*slice(first, last, step).indices(shape[axis]))
        begin[axis], counts[axis], strides[axis] = selected.start, len(selected), step
    if 0 in counts:
        return _empty_tensor(c, counts)
    return c.emit.slice(c.input(0), begin, counts, strides)


def _tile(c: NodeContext) -> OnnxValue:
    repeats = c.ints(1, "repeats")
    if 0 in repeats:
        raise NotSupportedError("a tensor without elements")
    if all(n == 1 for n in repeats):
        return c.input(0)
    return c.emit.call("tile", c.input(0), attrs=TileAttrs(multiples=repeats))


def _move_blocks(is_spread: bool, c: NodeContext) -> OnnxValue:
    """Move channels to blocks of pixels (DepthToSpace), or the other way."""
    if c.rank != 4:
        raise NotSupportedError(f"an image of {c.rank} dimensions")
    n, channels, height, width = c.shape(0)
    block = int(c.attr("blocksize"))
    is_dcr = c.attr("mode", "DCR") == "DCR"
    if is_spread:
        inner = channels // (block * block)
        split = (n, inner, block, block, height, width)
        perm = (0, 1, 4, 2, 5, 3)
        if is_dcr:
            split = (n, block, block, inner, height, width)
            perm = (0, 3, 4, 1, 5, 2)
        shape = (n, inner, height * block, width * block)
    else:
        split = (n, channels, height // block, block, width // block, block)
        perm = (0, 3, 5, 1, 2, 4) if is_dcr else (0, 1, 3, 5, 2, 4)
        shape = (n, channels * block * block, height // block, width // block)
    blocks = c.emit.reshape(c.input(0), split)
    return c.emit.reshape(c.emit.transpose(blocks, perm), shape)


def _reverse_sequence(c: NodeContext) -> OnnxValue:
    """Reverse the first lengths[i] time steps of sample i by a static gather."""
    lengths = c.array(1, "lengths").reshape(-1)
    shape = c.shape(0)
    time = normalize_axis(c.attr("time_axis", 0), len(shape))
    batch = normalize_axis(c.attr("batch_axis", 1), len(shape))
    places = np.arange(math.prod(shape)).reshape(shape)
    moved = np.moveaxis(places, (batch, time), (0, 1)).copy()
    for sample, length in enumerate(lengths):
        moved[sample, :length] = moved[sample, :length][::-1]
    flat = c.emit.reshape(c.input(0), (math.prod(shape),))
    return c.emit.gather(flat, 0, np.moveaxis(moved, (0, 1), (batch, time)))


def _pad(c: NodeContext) -> OnnxValue:
    pads = c.ints(1, "pads")
    axes = _axes(c, 3, c.rank) or tuple(range(c.rank))
    if len(pads) != 2 * len(axes):
        raise NotSupportedError(f"{len(pads)} pads of {len(axes)} axes")
    before, after = [0] * c.rank, [0] * c.rank
    for position, axis in enumerate(axes):
        before[axis], after[axis] = pads[position], pads[position + len(axes)]
    mode = c.attr("mode", "constant")
    x = _crop(c, before, after)
    pairs = [(max(p, 0), max(q, 0)) for p, q in zip(before, after, strict=True)]
    if mode != "constant":
        return _pad_by_gather(c, x, mode, pairs)
    margins = tuple(chain.from_iterable(pairs))
    if not any(margins):
        return x
    attrs = PadAttrs(paddings=margins)
    value = c.input(2) if c.has(2) and 0 not in c.shape(2) else None
    if isinstance(value, ConstantValue):
        filler = c.emit.const(value.array.reshape(1), "padding")
        return c.emit.call("pad", x, filler, attrs=attrs)
    padded = c.emit.call("pad", x, attrs=attrs)
    if value is None:
        return padded
    # The margin is where a padded tensor of ones is zero.
    mask = c.emit.const(np.pad(np.ones(x.shape, bool), pairs), "inside")
    return c.emit.expression("where(b, a, c)", padded, mask, c.emit.reshape(value, ()))


def _crop(c: NodeContext, before: Sequence[int], after: Sequence[int]) -> OnnxValue:
    begin: list[int] = []
    counts: list[int] = []
    for size, first, last in zip(c.shape(0), before, after, strict=True):
        begin.append(max(-first, 0))
        counts.append(size - max(-first, 0) - max(-last, 0))
    return c.emit.slice(c.input(0), begin, counts)


def _pad_by_gather(
    c: NodeContext, x: OnnxValue, mode: str, pairs: Sequence[tuple[int, int]]
) -> OnnxValue:
    """Pad with elements of the tensor itself, by one static gather per axis."""
    if mode not in ("reflect", "edge", "wrap"):
        raise NotSupportedError(f"padding in mode {mode!r}")
    for axis, margins in enumerate(pairs):
        if any(margins):
            there = np.pad(np.arange(x.shape[axis]), margins, mode)  # type: ignore[call-overload]  # a str, not a literal type
            x = c.emit.gather(x, axis, there)
    return x


def _one_hot(c: NodeContext) -> OnnxValue:
    indices, values = c.input(0), c.input(2)
    depth, rank = int(c.scalar(1, "depths")), c.rank + 1
    axis = c.axis(-1, rank=rank)
    spread = list(indices.shape)
    spread.insert(axis, 1)
    kind = indices.type.dtype
    line = np.arange(depth).reshape(vector_shape(depth, axis, rank)).astype(kind.np)
    off = c.emit.reshape(c.emit.slice(values, [0], [1]), ())
    on = c.emit.reshape(c.emit.slice(values, [1], [1]), ())
    steps = c.emit.const(line, "places")
    wide = c.emit.reshape(indices, spread)
    is_natural = not kind.signed
    place = "a" if is_natural else f"where(a < 0, a + {kind.name}({depth}), a)"
    return c.emit.expression(f"where({place} == b, c, d)", wide, steps, on, off)


IMPORTERS: Mapping[str, Importer] = {
    "BitCast": _bit_cast,
    "Concat": _concat,
    "DepthToSpace": partial(_move_blocks, True),
    "Expand": _expand,
    "EyeLike": _eye_like,
    "Flatten": _flatten,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Reshape": _reshape,
    "ReverseSequence": _reverse_sequence,
    "Shape": _shape,
    "Size": lambda c: c.emit.const(np.array(math.prod(c.shape(0)), np.int64), "size"),
    "Slice": _slice,
    "SpaceToDepth": partial(_move_blocks, False),
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
}
