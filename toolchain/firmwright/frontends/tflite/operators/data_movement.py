"""Operators that reorder, select or repeat; constant inputs become attributes."""

from collections.abc import Mapping, Sequence
from typing import Literal

from firmwright.base.errors import NotSupportedError
from firmwright.frontends.axes import normalize_axis
from firmwright.frontends.tflite.node_context import (
    ImportContext,
    ImportedCall,
    Importer,
    constant_int,
    constant_ints,
    copy_importer,
    fused_activation,
    input_rank,
    input_type,
    plain_importer,
    require_tensors,
)
from firmwright.ir.core import Attr
from firmwright.ir.graph.attributes.movement import (
    AxisAttrs,
    BroadcastAttrs,
    MirrorPadAttrs,
    PadAttrs,
    ReverseAttrs,
    SplitAttrs,
    StridedSliceAttrs,
    TileAttrs,
    TransposeAttrs,
)
from firmwright.ops.data_movement import checked_slice


def _transpose_attrs(context: ImportContext) -> TransposeAttrs:
    perm = constant_ints(context, 1, "axes")
    rank = input_rank(context)
    axes = tuple(normalize_axis(axis, rank) for axis in perm)
    if sorted(axes) != list(range(rank)):
        raise NotSupportedError(f"the permutation {list(perm)} of {rank} dimensions")
    return TransposeAttrs(perm=axes)


def _slice_attrs(context: ImportContext) -> StridedSliceAttrs:
    begin = constant_ints(context, 1, "begins or sizes")
    size = constant_ints(context, 2, "begins or sizes")
    x = input_type(context)
    if not len(begin) == len(size) == len(x.shape):
        raise NotSupportedError(
            f"{len(begin)} begins, {len(size)} sizes, {len(x.shape)} axes"
        )
    counts: list[int] = []
    for length, first, count in zip(x.shape, begin, size, strict=True):
        counts.append(length - first if count == -1 else count)
    return checked_slice(x.shape, begin, (1,) * len(begin), counts, ())


def _strided_slice_attrs(context: ImportContext) -> StridedSliceAttrs:
    role = "begins, ends or strides"
    begin = constant_ints(context, 1, role)
    end = constant_ints(context, 2, role)
    strides = constant_ints(context, 3, role)
    x, options = input_type(context), context.node.options
    if options["ellipsis_mask"] or options["new_axis_mask"] or options.get("offset"):
        raise NotSupportedError("a strided slice with ellipses, new axes or offsets")
    if not len(begin) == len(end) == len(strides) <= len(x.shape) or 0 in strides:
        raise NotSupportedError("begins, ends and strides that do not fit the input")
    firsts: list[int] = []
    steps: list[int] = []
    counts: list[int] = []
    shrunk: list[int] = []
    for axis, n in enumerate(x.shape):
        if axis >= len(begin):
            firsts.append(0)
            steps.append(1)
            counts.append(n)
            continue
        start = None if _bit(options["begin_mask"], axis) else begin[axis]
        stop = None if _bit(options["end_mask"], axis) else end[axis]
        positions = range(*slice(start, stop, strides[axis]).indices(n))
        first = positions.start
        step = strides[axis]
        count = len(positions)
        if _bit(options["shrink_axis_mask"], axis):
            shrunk.append(axis)
            step, count = 1, 1
        firsts.append(first)
        steps.append(step)
        counts.append(count)
    return checked_slice(x.shape, firsts, steps, counts, shrunk)


def _bit(mask: Attr, axis: int) -> bool:
    assert isinstance(mask, int)
    return bool(mask >> axis & 1)


def _split(context: ImportContext) -> ImportedCall:
    by_sizes = context.node.op == "SPLIT_V"
    require_tensors(context, 3 if by_sizes else 2, outputs=None)
    position = 0 if by_sizes else 1
    x = input_type(context, position)
    parts = len(context.outputs)
    stated_axis = constant_int(context, 2 if by_sizes else 0, "axes")
    axis = normalize_axis(stated_axis, len(x.shape))
    sizes = (x.shape[axis] // parts,) * parts
    if by_sizes:
        sizes = constant_ints(context, 1, "sizes")
        remainder = x.shape[axis] - sum(n for n in sizes if n != -1)
        sizes = tuple(remainder if n == -1 else n for n in sizes)
    if sum(sizes) != x.shape[axis] or len(sizes) != parts or min(sizes) < 1:
        raise NotSupportedError(f"{x.shape[axis]} elements split into {list(sizes)}")
    return ImportedCall("split", SplitAttrs(axis=axis, sizes=sizes), (position,))


def _pack(context: ImportContext) -> ImportedCall:
    require_tensors(context, max(1, len(context.inputs)))
    axis = normalize_axis(context.node.options["axis"], input_rank(context) + 1)
    return ImportedCall("pack", AxisAttrs(axis=axis), tuple(range(len(context.inputs))))


def _unpack_attrs(context: ImportContext) -> AxisAttrs:
    axis = normalize_axis(context.node.options["axis"], input_rank(context))
    return AxisAttrs(axis=axis)


def _concatenation(context: ImportContext) -> ImportedCall:
    require_tensors(context, max(1, len(context.inputs)))
    if fused_activation(context) != "none":
        raise NotSupportedError("a concatenation with an activation")
    axis = context.node.options["axis"]
    assert isinstance(axis, int)
    if axis < 0:
        axis += input_rank(context)
    positions = tuple(range(len(context.inputs)))
    return ImportedCall("concatenation", AxisAttrs(axis=axis), positions)


def _reverse_attrs(context: ImportContext) -> ReverseAttrs:
    rank = input_rank(context)
    axes = constant_ints(context, 1, "axes")
    return ReverseAttrs(axes=tuple(normalize_axis(axis, rank) for axis in axes))


def _pad(context: ImportContext) -> ImportedCall:
    require_tensors(context, 2)
    positions = (0, 2) if len(context.inputs) > 2 else (0,)
    attrs = PadAttrs(paddings=constant_ints(context, 1, "paddings"))
    return ImportedCall("pad", attrs, positions)


def _mirror_pad_attrs(context: ImportContext) -> MirrorPadAttrs:
    x = input_type(context)
    flat = constant_ints(context, 1, "paddings")
    skip: Literal[0, 1] = 1 if context.node.options["mode"] == "REFLECT" else 0
    if not _are_inside(flat, x.shape, skip):
        raise NotSupportedError("a mirrored margin wider than the input")
    return MirrorPadAttrs(paddings=flat, skip=skip)


def _are_inside(margins: Sequence[int], shape: Sequence[int], skip: int) -> bool:
    """Return whether the margins, two for each axis, are narrower than the input."""
    if len(margins) != 2 * len(shape):
        return False
    return all(0 <= n <= shape[k // 2] - skip for k, n in enumerate(margins))


def _broadcast_attrs(context: ImportContext) -> BroadcastAttrs:
    return BroadcastAttrs(shape=constant_ints(context, 1, "shapes"))


def _tile_attrs(context: ImportContext) -> TileAttrs:
    return TileAttrs(multiples=constant_ints(context, 1, "multiples"))


IMPORTERS: Mapping[str, Importer] = {
    "BROADCAST_TO": copy_importer("broadcast_to", 2, _broadcast_attrs),
    "CONCATENATION": Importer("concatenation", _concatenation),
    "EXPAND_DIMS": plain_importer("reshape"),
    "MIRROR_PAD": copy_importer("mirror_pad", 2, _mirror_pad_attrs),
    "PACK": Importer("pack", _pack),
    "PAD": Importer("pad", _pad),
    "PADV2": Importer("pad", _pad),
    "RESHAPE": plain_importer("reshape"),
    "REVERSE_V2": copy_importer("reverse_v2", 2, _reverse_attrs),
    "SLICE": copy_importer("strided_slice", 3, _slice_attrs),
    "SPLIT": Importer("split", _split),
    "SPLIT_V": Importer("split", _split),
    "SQUEEZE": plain_importer("reshape"),
    "STRIDED_SLICE": copy_importer("strided_slice", 4, _strided_slice_attrs),
    "TILE": copy_importer("tile", 2, _tile_attrs),
    "TRANSPOSE": copy_importer("transpose", 2, _transpose_attrs),
    "UNPACK": copy_importer("unpack", 1, _unpack_attrs),
}
