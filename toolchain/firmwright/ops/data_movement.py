"""Operators that only reorder, select or repeat elements, as strided copies.

TFLite's constant inputs (permutations, begins, multiples...) are attributes here; axes count from
0.
Semantics: TFLite's reference operators of these names.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.core import Attr
from firmwright.ir.graph import ImportContext, ImportedCall, OpCall, OpDef
from firmwright.ops.import_checks import (
    constant_int,
    constant_ints,
    input_rank,
    input_type,
    normalize_axis,
    require_tensors,
)
from firmwright.ops.strided_copy import (
    CopyAxis,
    StridedCopy,
    copy_axes,
    data_movement_op,
    row_major_strides,
)


def _transpose_attrs(context: ImportContext) -> dict[str, Attr]:
    perm = constant_ints(context, 1, "axes")
    rank = input_rank(context)
    axes = tuple(normalize_axis(axis, rank) for axis in perm)
    if sorted(axes) != list(range(rank)):
        raise NotSupportedError(f"the permutation {list(perm)} of {rank} dimensions")
    return {"perm": axes}


def _transposed_shape(call: OpCall) -> tuple[int, ...]:
    return tuple(call.input(0).shape[axis] for axis in call.ints_attr("perm"))


def _transpose_copies(call: OpCall) -> Sequence[StridedCopy]:
    strides = row_major_strides(call.input(0).shape)
    permuted = [strides[axis] for axis in call.ints_attr("perm")]
    return [StridedCopy(copy_axes(_transposed_shape(call), permuted))]


def _slice_attrs(context: ImportContext) -> dict[str, Attr]:
    begin, size = (constant_ints(context, k, "begins or sizes") for k in (1, 2))
    x = input_type(context)
    if not len(begin) == len(size) == len(x.shape):
        raise NotSupportedError(f"{len(begin)} begins, {len(size)} sizes, {len(x.shape)} axes")
    counts = tuple(n - b if s == -1 else s for n, b, s in zip(x.shape, begin, size, strict=True))
    return _checked_slice(x.shape, begin, (1,) * len(begin), counts, ())


def _checked_slice(
    shape: Sequence[int],
    begin: Sequence[int],
    strides: Sequence[int],
    counts: Sequence[int],
    shrunk: Sequence[int],
) -> dict[str, Attr]:
    if not len(begin) == len(strides) == len(counts) == len(shape):
        raise NotSupportedError(f"a slice along {len(begin)} of {len(shape)} axes")
    for n, first, step, count in zip(shape, begin, strides, counts, strict=True):
        last = first + step * (count - 1)
        if count < 1 or not (0 <= first < n and 0 <= last < n):
            raise NotSupportedError(f"a slice of {count} elements from {first} in an axis of {n}")
    return {
        "begin": tuple(begin),
        "strides": tuple(strides),
        "counts": tuple(counts),
        "shrunk": tuple(shrunk),
    }


def _strided_attrs(context: ImportContext) -> dict[str, Attr]:
    begin, end, strides = (constant_ints(context, k, "begins, ends or strides") for k in (1, 2, 3))
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
            firsts, steps, counts = [*firsts, 0], [*steps, 1], [*counts, n]
            continue
        start = None if _bit(options["begin_mask"], axis) else begin[axis]
        stop = None if _bit(options["end_mask"], axis) else end[axis]
        positions = range(*slice(start, stop, strides[axis]).indices(n))
        first, step, count = positions.start, strides[axis], len(positions)
        if _bit(options["shrink_axis_mask"], axis):
            shrunk.append(axis)
            step, count = 1, 1
        firsts, steps, counts = [*firsts, first], [*steps, step], [*counts, count]
    return _checked_slice(x.shape, firsts, steps, counts, shrunk)


def _bit(mask: Attr, axis: int) -> bool:
    assert isinstance(mask, int)
    return bool(mask >> axis & 1)


def _slice_shape(call: OpCall) -> tuple[int, ...]:
    begin, strides, counts, shrunk = map(call.ints_attr, ("begin", "strides", "counts", "shrunk"))
    _checked_slice(call.input(0).shape, begin, strides, counts, shrunk)
    return tuple(n for axis, n in enumerate(counts) if axis not in shrunk)


def _slice_copies(call: OpCall) -> Sequence[StridedCopy]:
    strides = row_major_strides(call.input(0).shape)
    steps = [a * b for a, b in zip(strides, call.ints_attr("strides"), strict=True)]
    first = sum(a * b for a, b in zip(strides, call.ints_attr("begin"), strict=True))
    return [StridedCopy(copy_axes(call.ints_attr("counts"), steps), first)]


def _slice_reference(call: OpCall, arrays: Sequence[Array]) -> Sequence[Array]:
    selected = arrays[0]
    rows = zip(*(call.ints_attr(k) for k in ("begin", "strides", "counts")), strict=True)
    for axis, (first, step, count) in enumerate(rows):
        selected = np.take(selected, [first + step * k for k in range(count)], axis=axis)
    return [selected.reshape(_slice_shape(call))]


def _split_import(context: ImportContext) -> ImportedCall:
    by_sizes = context.node.op == "SPLIT_V"
    require_tensors(context, 3 if by_sizes else 2, outputs=None)
    position = 0 if by_sizes else 1
    x, parts = input_type(context, position), len(context.outputs)
    axis = normalize_axis(constant_int(context, 2 if by_sizes else 0, "axes"), len(x.shape))
    sizes = (x.shape[axis] // parts,) * parts
    if by_sizes:
        sizes = constant_ints(context, 1, "sizes")
        remainder = x.shape[axis] - sum(n for n in sizes if n != -1)
        sizes = tuple(remainder if n == -1 else n for n in sizes)
    if sum(sizes) != x.shape[axis] or len(sizes) != parts or min(sizes) < 1:
        raise NotSupportedError(f"{x.shape[axis]} elements split into {list(sizes)}")
    return ImportedCall("split", {"axis": axis, "sizes": sizes}, (position,))


def _split_shapes(call: OpCall) -> list[tuple[int, ...]]:
    axis, shape = call.int_attr("axis"), call.input(0).shape
    return [(*shape[:axis], n, *shape[axis + 1 :]) for n in call.ints_attr("sizes")]


def _split_copies(call: OpCall) -> Sequence[StridedCopy]:
    strides, axis = row_major_strides(call.input(0).shape), call.int_attr("axis")
    first, copies = 0, []
    for result, shape in enumerate(_split_shapes(call)):
        copies.append(StridedCopy(copy_axes(shape, strides), first * strides[axis], result=result))
        first += shape[axis]
    return copies


def _split_reference(call: OpCall, arrays: Sequence[Array]) -> Sequence[Array]:
    ends = np.cumsum(call.ints_attr("sizes"))[:-1]
    return np.split(arrays[0], ends, axis=call.int_attr("axis"))


def _pack_import(context: ImportContext) -> ImportedCall:
    require_tensors(context, max(1, len(context.inputs)))
    axis = normalize_axis(context.node.options["axis"], input_rank(context) + 1)
    return ImportedCall("pack", {"axis": axis}, tuple(range(len(context.inputs))))


def _pack_shape(call: OpCall) -> tuple[int, ...]:
    axis, shape = call.int_attr("axis"), call.input(0).shape
    if any(kind is None or kind.shape != shape for kind in call.inputs) or axis > len(shape):
        raise NotSupportedError("inputs of different shapes")
    return (*shape[:axis], len(call.inputs), *shape[axis:])


def _pack_copies(call: OpCall) -> Sequence[StridedCopy]:
    axis, shape = call.int_attr("axis"), call.input(0).shape
    strides = row_major_strides(_pack_shape(call))
    others = [stride for k, stride in enumerate(strides) if k != axis]
    axes = tuple(map(CopyAxis, shape, row_major_strides(shape), others))
    return [
        StridedCopy(axes, 0, source * strides[axis], source=source)
        for source in range(len(call.inputs))
    ]


def _unpack_shapes(call: OpCall) -> list[tuple[int, ...]]:
    axis, shape = call.int_attr("axis"), call.input(0).shape
    return [(*shape[:axis], *shape[axis + 1 :])] * shape[axis]


def _unpack_copies(call: OpCall) -> Sequence[StridedCopy]:
    axis, strides = call.int_attr("axis"), row_major_strides(call.input(0).shape)
    others = [stride for k, stride in enumerate(strides) if k != axis]
    return [
        StridedCopy(copy_axes(shape, others), result * strides[axis], result=result)
        for result, shape in enumerate(_unpack_shapes(call))
    ]


def _gather_import(context: ImportContext) -> ImportedCall:
    """Import constant indices as attributes; other gathers become dynamic_gather."""
    require_tensors(context, 2)
    x, indices = input_type(context), input_type(context, 1)
    axis = normalize_axis(context.node.options["axis"], len(x.shape))
    batch = context.node.options["batch_dims"]
    if context.constants[1] is None or batch:
        dims = normalize_axis(batch, len(indices.shape) + 1)
        attrs: dict[str, Attr] = {"mode": "along", "axis": axis, "batch_dims": dims}
        return ImportedCall("dynamic_gather", attrs, (0, 1))
    values = constant_ints(context, 1, "indices")
    if not all(0 <= index < x.shape[axis] for index in values):
        raise NotSupportedError("indices outside of the input")
    return ImportedCall("gather", {"axis": axis, "indices": values, "shape": indices.shape}, (0,))


def _gather_shape(call: OpCall) -> tuple[int, ...]:
    axis, shape = call.int_attr("axis"), call.input(0).shape
    return (*shape[:axis], *call.ints_attr("shape"), *shape[axis + 1 :])


def _gather_copies(call: OpCall) -> Sequence[StridedCopy]:
    axis, shape, indices = call.int_attr("axis"), call.input(0).shape, call.ints_attr("indices")
    extents = (*shape[:axis], len(indices), *shape[axis + 1 :])
    axes = list(copy_axes(extents, row_major_strides(shape)))
    axes[axis] = replace(axes[axis], table=indices)
    return [StridedCopy(tuple(axes))]


def _gather_reference(call: OpCall, arrays: Sequence[Array]) -> Sequence[Array]:
    selected = np.take(arrays[0], call.ints_attr("indices"), axis=call.int_attr("axis"))
    return [selected.reshape(_gather_shape(call))]


def _tile_copies(call: OpCall) -> Sequence[StridedCopy]:
    shape, strides = call.input(0).shape, row_major_strides(call.input(0).shape)
    y_strides = row_major_strides(call.output.shape)
    axes: list[CopyAxis] = []
    for times, n, x, y in zip(call.ints_attr("multiples"), shape, strides, y_strides, strict=True):
        axes += [CopyAxis(times, 0, n * y), CopyAxis(n, x, y)]
    return [StridedCopy(tuple(axes))]


def _tile_shape(call: OpCall) -> tuple[int, ...]:
    shape, multiples = call.input(0).shape, call.ints_attr("multiples")
    if len(shape) != len(multiples):
        raise NotSupportedError(f"{len(multiples)} multiples of {len(shape)} dimensions")
    return tuple(a * b for a, b in zip(shape, multiples, strict=True))


def _aligned_shape(call: OpCall) -> tuple[int, ...]:
    shape, target = call.input(0).shape, call.ints_attr("shape")
    aligned = (1,) * (len(target) - len(shape)) + tuple(shape)
    if len(aligned) != len(target) or any(
        a not in (1, n) for a, n in zip(aligned, target, strict=True)
    ):
        raise NotSupportedError(f"{list(shape)} cannot be broadcast to {list(target)}")
    return aligned


def _broadcast_shape(call: OpCall) -> tuple[int, ...]:
    _aligned_shape(call)
    return call.ints_attr("shape")


def _broadcast_copies(call: OpCall) -> Sequence[StridedCopy]:
    aligned = _aligned_shape(call)
    strides = [0 if n == 1 else s for n, s in zip(aligned, row_major_strides(aligned), strict=True)]
    return [StridedCopy(copy_axes(call.ints_attr("shape"), strides))]


def _reverse_attrs(context: ImportContext) -> dict[str, Attr]:
    rank = input_rank(context)
    return {"axes": tuple(normalize_axis(axis, rank) for axis in constant_ints(context, 1, "axes"))}


def _reversed_shape(call: OpCall) -> tuple[int, ...]:
    shape, axes = call.input(0).shape, call.ints_attr("axes")
    if not all(0 <= axis < len(shape) for axis in axes):
        raise NotSupportedError(f"the axes {list(axes)} of {len(shape)}")
    return shape


def _reverse_copies(call: OpCall) -> Sequence[StridedCopy]:
    shape, axes = call.input(0).shape, call.ints_attr("axes")
    strides = row_major_strides(shape)
    first = sum((shape[axis] - 1) * strides[axis] for axis in axes)
    steps = [-stride if axis in axes else stride for axis, stride in enumerate(strides)]
    return [StridedCopy(copy_axes(shape, steps), first)]


OPDEFS: tuple[OpDef, ...] = (
    data_movement_op(
        "transpose",
        _transposed_shape,
        _transpose_copies,
        lambda call, arrays: [arrays[0].transpose(call.ints_attr("perm"))],
        {"TRANSPOSE": (2, _transpose_attrs)},
    ),
    data_movement_op(
        "strided_slice",
        _slice_shape,
        _slice_copies,
        _slice_reference,
        {"SLICE": (3, _slice_attrs), "STRIDED_SLICE": (4, _strided_attrs)},
    ),
    data_movement_op(
        "split",
        _split_shapes,
        _split_copies,
        _split_reference,
        {"SPLIT": _split_import, "SPLIT_V": _split_import},
    ),
    data_movement_op(
        "pack",
        _pack_shape,
        _pack_copies,
        lambda call, arrays: [np.stack(arrays, axis=call.int_attr("axis"))],
        {"PACK": _pack_import},
    ),
    data_movement_op(
        "unpack",
        _unpack_shapes,
        _unpack_copies,
        lambda call, arrays: list(np.moveaxis(arrays[0], call.int_attr("axis"), 0)),
        {
            "UNPACK": (
                1,
                lambda context: {
                    "axis": normalize_axis(context.node.options["axis"], input_rank(context))
                },
            )
        },
    ),
    data_movement_op(
        "gather",
        _gather_shape,
        _gather_copies,
        _gather_reference,
        {"GATHER": _gather_import},
    ),
    data_movement_op(
        "tile",
        _tile_shape,
        _tile_copies,
        lambda call, arrays: [np.tile(arrays[0], call.ints_attr("multiples"))],
        {"TILE": (2, lambda context: {"multiples": constant_ints(context, 1, "multiples")})},
    ),
    data_movement_op(
        "broadcast_to",
        _broadcast_shape,
        _broadcast_copies,
        lambda call, arrays: [np.broadcast_to(arrays[0], call.ints_attr("shape"))],
        {"BROADCAST_TO": (2, lambda context: {"shape": constant_ints(context, 1, "shapes")})},
    ),
    data_movement_op(
        "reverse_v2",
        _reversed_shape,
        _reverse_copies,
        lambda call, arrays: [np.flip(arrays[0], call.ints_attr("axes"))],
        {"REVERSE_V2": (2, _reverse_attrs)},
    ),
)
