"""Operators that move data or make constants."""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from firmwright.base.errors import NotSupportedError
from firmwright.frontends.pytorch.program import Ref
from firmwright.frontends.pytorch.translation import NodeTranslation, Translators

_END = np.iinfo(np.int64).max


def _reshape(t: NodeTranslation) -> str:
    return t.reshape(t.tensor("self"), t.output_shape())


def transpose(t: NodeTranslation, x: str, perm: Sequence[int]) -> str:
    if list(perm) == list(range(len(perm))):
        return x
    return t.emit("Transpose", x, perm=tuple(perm))


def _permute(t: NodeTranslation) -> str:
    rank = len(t.shape("self"))
    return _transposed(t, [axis % rank for axis in t.ints("dims")])


def _swap(t: NodeTranslation) -> str:
    rank = len(t.shape("self"))
    perm = list(range(rank))
    first = t.axis("dim0", rank, 0)
    second = t.axis("dim1", rank, 1)
    if rank:
        perm[first], perm[second] = perm[second], perm[first]
    return _transposed(t, perm)


def _transposed(t: NodeTranslation, perm: list[int]) -> str:
    x = t.tensor("self")
    y = transpose(t, x, perm)
    if perm == [1, 0] and t.node.outputs[0]:
        t.writer.transposed[t.node.outputs[0]] = x
    return y


def _expand(t: NodeTranslation) -> str:
    x, shape = t.tensor("self"), t.output_shape()
    if t.shape("self") == shape:
        return x
    return t.emit("Expand", x, np.array(shape, np.int64))


def _with_size(shape: Sequence[int], axis: int, size: int) -> list[int]:
    """Return a shape with another size along `axis`."""
    return [size if k == axis else n for k, n in enumerate(shape)]


def _repeat(t: NodeTranslation) -> str:
    repeats = t.ints("repeats") or t.ints("dims")
    shape = t.shape("self")
    repeats = [1] * (len(shape) - len(repeats)) + repeats
    wide = (1,) * (len(repeats) - len(shape)) + shape
    x = t.tensor("self") if wide == shape else t.reshape(t.tensor("self"), wide)
    return t.emit("Tile", x, np.array(repeats, np.int64))


def _cat(t: NodeTranslation) -> str:
    tensors = t.node.args.get("tensors")
    parts = tensors if isinstance(tensors, list) else []
    kinds = [t.declared(p.name) for p in parts if isinstance(p, Ref)]
    names: list[str] = []
    for name, kind in zip(t.tensors("tensors"), kinds, strict=True):
        if kind.shape == (0,) and t.output_shape() != (0,):
            continue
        names.append(name if kind.dtype == t.dtype() else t.cast(name, t.dtype()))
    return t.emit("Concat", *names, axis=t.axis("dim", len(t.output_shape()), 0))


def _stack(t: NodeTranslation) -> str:
    shape = t.output_shape()
    axis = t.axis("dim", len(shape), 0)
    part = _with_size(shape, axis, 1)
    parts = [t.reshape(x, part) for x in t.tensors("tensors")]
    return t.emit("Concat", *parts, axis=axis)


def _split(t: NodeTranslation) -> Sequence[str]:
    axis = t.axis("dim", len(t.shape("self")), 0)
    sizes = [t.output_shape(k)[axis] for k in range(len(t.node.outputs))]
    counts = np.array(sizes, np.int64)
    return t.emit_all("Split", len(sizes), t.tensor("self"), counts, axis=axis)


def _unbind(t: NodeTranslation) -> Sequence[str]:
    axis = t.axis("dim", len(t.shape("self")), 0)
    count = len(t.node.outputs)
    ones = np.ones(count, np.int64)
    parts = t.emit_all("Split", count, t.tensor("self"), ones, axis=axis)
    return [t.reshape(part, t.output_shape(k)) for k, part in enumerate(parts)]


def slice_axis(
    t: NodeTranslation, x: str, axis: int, first: int, last: int, step: int = 1
) -> str:
    bounds = [np.array([n], np.int64) for n in (first, last, axis, step)]
    return t.emit("Slice", x, *bounds)


def _slice(t: NodeTranslation) -> str:
    axis = t.axis("dim", len(t.shape("self")), 0)
    step = t.arg("step", 1)
    start, end = t.arg("start", 0), t.arg("end", _END)
    return slice_axis(t, t.tensor("self"), axis, start, end, step)


def _narrow(t: NodeTranslation) -> str:
    axis = t.axis("dim", len(t.shape("self")))
    start = t.arg("start", 0)
    start = start + t.shape("self")[axis] if start < 0 else start
    return slice_axis(t, t.tensor("self"), axis, start, start + t.arg("length"))


def _select(t: NodeTranslation) -> str:
    shape = t.shape("self")
    axis = t.axis("dim", len(shape), 0)
    index = t.arg("index", 0)
    index = index + shape[axis] if index < 0 else index
    part = slice_axis(t, t.tensor("self"), axis, index, index + 1)
    return t.reshape(part, t.output_shape())


def _scatter_axis(t: NodeTranslation, axis: int, places: range) -> str:
    """Replace the given indices of an axis by the argument `src`."""
    shape = t.shape("self")
    part = _with_size(shape, axis, len(places))
    x = t.tensor("self")
    source = t.reshape(t.tensor("src"), part)
    if places.step == 1:
        pieces: list[str] = []
        if places.start:
            pieces.append(slice_axis(t, x, axis, 0, places.start))
        pieces.append(source)
        if places.stop < shape[axis]:
            pieces.append(slice_axis(t, x, axis, places.stop, _END))
        return t.emit("Concat", *pieces, axis=axis)
    line = _with_size((1,) * len(shape), axis, len(places))
    indices = np.broadcast_to(np.array(places, np.int64).reshape(line), part)
    return t.emit("ScatterElements", x, indices, source, axis=axis)


def _slice_scatter(t: NodeTranslation) -> str:
    shape = t.shape("self")
    axis = t.axis("dim", len(shape), 0)
    bounds = slice(t.arg("start"), t.arg("end"), t.arg("step", 1)).indices(shape[axis])
    return _scatter_axis(t, axis, range(*bounds))


def _select_scatter(t: NodeTranslation) -> str:
    shape = t.shape("self")
    axis = t.axis("dim", len(shape), 0)
    index = t.arg("index", 0) % max(shape[axis], 1)
    return _scatter_axis(t, axis, range(index, index + 1))


def _flip(t: NodeTranslation) -> str:
    x, rank = t.tensor("self"), len(t.shape("self"))
    for axis in t.ints("dims"):
        x = slice_axis(t, x, axis % rank, -1, -_END, -1)
    return x


def _roll(t: NodeTranslation) -> str:
    x, shape = t.tensor("self"), t.shape("self")
    shifts, axes = t.ints("shifts"), t.ints("dims")
    if not axes:
        axes, shape = [0], (math.prod(shape),)
        x = t.reshape(x, shape)
    for shift, place in zip(shifts, axes, strict=True):
        axis = place % len(shape)
        cut = -shift % shape[axis]
        if cut:
            parts = (slice_axis(t, x, axis, cut, _END), slice_axis(t, x, axis, 0, cut))
            x = t.emit("Concat", *parts, axis=axis)
    return x if t.ints("dims") else t.reshape(x, t.output_shape())


def _pad(own_mode: str, t: NodeTranslation) -> str:
    """Pad by pairs that begin with the last axis."""
    torch_mode = own_mode or t.arg("mode", "constant")
    pads = t.ints("pad") or t.ints("padding")
    modes = {
        "constant": "constant",
        "reflect": "reflect",
        "replicate": "edge",
        "circular": "wrap",
    }
    if torch_mode not in modes:
        raise NotSupportedError(f"padding by {torch_mode!r}")
    mode = modes[torch_mode]
    if not any(pads):
        return t.tensor("self")
    margins = np.array(margins_of(pads, len(t.shape("self"))), np.int64).reshape(-1)
    value = np.array(t.arg("value", 0) or 0, t.dtype()) if mode == "constant" else None
    return t.emit("Pad", t.tensor("self"), margins, value, mode=mode)


def margins_of(pads: Sequence[int], rank: int) -> list[list[int]]:
    """Return the margins before and after each axis of pairs from the last axis on."""
    missing = [0] * (rank - len(pads) // 2)
    return [[*missing, *pads[-2::-2]], [*missing, *pads[:0:-2]]]


def _channel_shuffle(t: NodeTranslation) -> str:
    shape, groups = t.shape("self"), t.arg("groups")
    split = (shape[0], groups, shape[1] // groups, *shape[2:])
    parts = t.reshape(t.tensor("self"), split)
    rank = len(shape) + 1
    return t.reshape(transpose(t, parts, [0, 2, 1, *range(3, rank)]), shape)


def _unfold(t: NodeTranslation) -> str:
    """Return overlapping windows of an axis, as a new last axis."""
    shape = t.shape("self")
    axis = t.axis("dimension", len(shape))
    size = t.arg("size")
    step = t.arg("step")
    t.reserve(8 * math.prod(t.output_shape()[axis:]))
    if not 0 < size <= shape[axis]:
        raise NotSupportedError(f"windows of {size} of an axis of {shape[axis]}")
    starts = np.arange(0, shape[axis] - size + 1, step, dtype=np.int64)
    y = t.emit("Gather", t.tensor("self"), starts[:, None] + np.arange(size), axis=axis)
    perm = [k for k in range(len(shape) + 1) if k != axis + 1]
    return transpose(t, y, [*perm, axis + 1])


def _indices(t: NodeTranslation) -> list[tuple[int, Ref]]:
    """Return the axes that a list of index tensors selects from, with the tensors."""
    indices = t.node.args.get("indices")
    items = list(enumerate(indices)) if isinstance(indices, list) else []
    selected = [(axis, item) for axis, item in items if isinstance(item, Ref)]
    kinds = {t.declared(item.name).dtype for _, item in selected}
    if not kinds or not kinds <= {"int32", "int64"}:
        raise NotSupportedError(
            "a mask as index, because the number of results depends on the data"
        )
    return selected


def _index(t: NodeTranslation) -> str:
    selected, shape = _indices(t), t.shape("self")
    first, last = selected[0][0], selected[-1][0]
    if last - first + 1 != len(selected):
        raise NotSupportedError("indices of axes that are not adjacent")
    if len(selected) == 1:
        return t.emit("Gather", t.tensor("self"), t.operand(selected[0][1]), axis=first)
    flat = ""
    for axis, item in selected:
        size = np.array(shape[axis], np.int64)
        x = t.cast(t.operand(item), "int64")
        is_negative = t.emit("Less", x, np.int64(0))
        place = t.emit("Where", is_negative, t.emit("Add", x, size), x)
        flat = t.emit("Add", t.emit("Mul", flat, size), place) if flat else place
    merged = (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])
    return t.emit("Gather", t.reshape(t.tensor("self"), merged), flat, axis=first)


def _index_put(t: NodeTranslation) -> str:
    """Write slices of one axis, as caches of keys and values do."""
    selected = _indices(t)
    if len(selected) != 1:
        raise NotSupportedError("indices of several axes")
    ((axis, index),) = selected
    return _scatter_slices(t, axis, index, "values")


def _index_copy(t: NodeTranslation) -> str:
    index = t.node.args["index"]
    assert isinstance(index, Ref)
    return _scatter_slices(t, t.axis("dim", len(t.shape("self"))), index, "source")


def _scatter_slices(t: NodeTranslation, axis: int, index: Ref, source: str) -> str:
    shape = t.shape("self")
    count = t.declared(index.name).shape
    if len(count) != 1 or len(t.shape(source)) != len(shape):
        raise NotSupportedError("indices of more than one axis")
    part = np.array(_with_size(shape, axis, int(count[0])), np.int64)
    line = _with_size((1,) * len(shape), axis, int(count[0]))
    places = t.reshape(t.operand(index), line)
    wide = t.emit("Expand", places, part)
    rows = t.emit("Expand", t.tensor(source), part)
    reduction = "add" if t.arg("accumulate", False) else "none"
    return t.emit(
        "ScatterElements", t.tensor("self"), wide, rows, axis=axis, reduction=reduction
    )


def _tri(upper: int, t: NodeTranslation) -> str:
    x = t.tensor("self")
    diagonal = np.array(t.arg("diagonal", 0))
    return t.emit("Trilu", x, diagonal, upper=upper)


def _filled(value: float, t: NodeTranslation) -> str:
    return t.constant(np.full(t.output_shape(), value, t.dtype()))


def _full(t: NodeTranslation) -> str:
    names = ("fill_value", "s", "value")
    value = next((t.arg(name) for name in names if t.has(name)), 0)
    return t.constant(np.full(t.output_shape(), value, t.dtype()))


def _arange(t: NodeTranslation) -> str:
    start, step = t.arg("start", 0), t.arg("step", 1)
    (count,) = t.output_shape()
    t.reserve(8 * count)
    return t.constant((start + step * np.arange(count)).astype(t.dtype()))


def _moved(t: NodeTranslation) -> str:
    rank = len(t.shape("self"))
    sources = [axis % rank for axis in t.ints("source")]
    targets = [axis % rank for axis in t.ints("destination")]
    rest = iter(axis for axis in range(rank) if axis not in sources)
    perm: list[int] = []
    for k in range(rank):
        perm.append(sources[targets.index(k)] if k in targets else next(rest))
    return transpose(t, t.tensor("self"), perm)


TRANSLATORS: Translators = {
    "arange": _arange,
    "cat": _cat,
    "channel_shuffle": _channel_shuffle,
    "chunk": _split,
    "constant_pad_nd": partial(_pad, ""),
    "concat": _cat,
    "empty": partial(_filled, 0),
    "expand": _expand,
    "expand_as": _expand,
    "flatten": _reshape,
    "flip": _flip,
    "full": _full,
    "full_like": _full,
    "index": _index,
    "index_copy": _index_copy,
    "index_put": _index_put,
    "movedim": _moved,
    "narrow": _narrow,
    "native_channel_shuffle": _channel_shuffle,
    "new_ones": partial(_filled, 1),
    "new_zeros": partial(_filled, 0),
    "ones": partial(_filled, 1),
    "ones_like": partial(_filled, 1),
    "pad": partial(_pad, ""),
    "permute": _permute,
    "reflection_pad1d": partial(_pad, "reflect"),
    "reflection_pad2d": partial(_pad, "reflect"),
    "repeat": _repeat,
    "replication_pad1d": partial(_pad, "replicate"),
    "replication_pad2d": partial(_pad, "replicate"),
    "reshape": _reshape,
    "roll": _roll,
    "scalar_tensor": _full,
    "select": _select,
    "select_scatter": _select_scatter,
    "slice": _slice,
    "slice_scatter": _slice_scatter,
    "split": _split,
    "split_with_sizes": _split,
    "squeeze": _reshape,
    "stack": _stack,
    "swapaxes": _swap,
    "t": lambda t: _transposed(t, list(range(len(t.shape("self"))))[::-1]),
    "tile": _repeat,
    "transpose": _swap,
    "tril": partial(_tri, 0),
    "triu": partial(_tri, 1),
    "unbind": _unbind,
    "unflatten": _reshape,
    "unfold": _unfold,
    "unsqueeze": _reshape,
    "_unsafe_view": _reshape,
    "view": _reshape,
    "view_as": _reshape,
    "zeros": partial(_filled, 0),
    "zeros_like": partial(_filled, 0),
}
