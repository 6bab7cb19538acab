"""Gather, scatter and ordering operators; constant indices give a static gather."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from firmwright.base.dtypes import BOOL, INT32, INT64
from firmwright.base.errors import NotSupportedError
from firmwright.base.resource_limits import check_result_bytes
from firmwright.frontends.axes import normalize_axis
from firmwright.frontends.onnx.node_context import (
    ConstantValue,
    Importer,
    NodeContext,
    OnnxValue,
)
from firmwright.ir.graph.attributes.movement import (
    DynamicGatherAttrs,
    DynamicScatterAttrs,
    ShapeAttrs,
)
from firmwright.ir.graph.attributes.values import (
    ArgMinMaxAttrs,
    CumulativeAttrs,
    CumulativeStep,
    TopKAttrs,
    UniqueAttrs,
)
from firmwright.ir.graph.nodes import TensorType


def _gather(c: NodeContext) -> OnnxValue:
    x = c.input(0)
    axis = c.axis(0)
    shape = c.shape(0)
    places = c.input(1)
    if not isinstance(places, ConstantValue):
        return c.emit.gather_along(x, axis, places)
    size = shape[axis]
    extents = (*shape[:axis], *places.shape, *shape[axis + 1 :])
    if not places.array.size:
        empty = np.zeros(extents, c.dtype(0).np)
        return ConstantValue(empty, f"{c.emit.stem}/empty")
    indices = places.array.astype(np.int64)
    indices = np.where(indices < 0, indices + size, indices)
    if not ((indices >= 0) & (indices < size)).all():
        raise NotSupportedError("indices outside of the input")
    first, count = int(indices.reshape(-1)[0]), indices.size
    if (indices.reshape(-1) == first + np.arange(count)).all():
        # Consecutive indices are a slice, which may be a view.
        part = c.emit.slice_axis(x, axis, first, count)
        return c.emit.reshape(part, extents)
    return c.emit.gather(x, axis, indices)


def _gather_elements(c: NodeContext) -> OnnxValue:
    attrs = DynamicGatherAttrs(mode="elements", axis=c.axis(0))
    return c.emit.call("dynamic_gather", c.input(0), c.input(1), attrs=attrs)


def _gather_slices(c: NodeContext) -> OnnxValue:
    attrs = DynamicGatherAttrs(mode="slices", batch_dims=int(c.attr("batch_dims", 0)))
    return c.emit.call("dynamic_gather", c.input(0), c.input(1), attrs=attrs)


def _scatter_elements(c: NodeContext) -> OnnxValue:
    step = c.attr("reduction", "none")
    attrs = DynamicScatterAttrs(mode="elements", axis=c.axis(0), step=step)
    inputs = (c.input(0), c.input(1), c.input(2))
    return c.emit.call("dynamic_scatter", *inputs, attrs=attrs)


def _scatter_slices(c: NodeContext) -> OnnxValue:
    step = c.attr("reduction", "none")
    batch_dims = int(c.attr("batch_dims", 0))
    attrs = DynamicScatterAttrs(mode="slices", batch_dims=batch_dims, step=step)
    inputs = (c.input(0), c.input(1), c.input(2))
    return c.emit.call("dynamic_scatter", *inputs, attrs=attrs)


def _true_indices(c: NodeContext, mask: OnnxValue) -> tuple[OnnxValue, OnnxValue]:
    """Emit the indices of the true elements of [n], and their number."""
    kinds = TensorType((), INT32), TensorType((), INT32)
    indices, count = c.emit.multi_call("true_indices", mask, declared=kinds)
    return indices, count


def _non_zero(c: NodeContext) -> OnnxValue:
    """Emit the coordinates of the elements other than 0, a row for each axis."""
    emit, shape, x = c.emit, c.shape(0), c.input(0)
    size = math.prod(shape)
    flat = emit.reshape(x, (size,))
    if x.type.dtype != BOOL:
        flat = emit.expression(f"a != {x.type.dtype.name}(0)", flat)
    indices, count = _true_indices(c, flat)
    places, stride, rows = emit.cast(indices, INT64), size, []
    for length in shape or (1,):
        stride //= length
        formula = f"a / int64({stride}) % int64({length})"
        rows.append(emit.reshape(emit.expression(formula, places), (1, size)))
    return emit.counted(emit.concat(rows, 0), 1, count)


def _compress(c: NodeContext) -> OnnxValue:
    x, axis = c.input(0), 0
    if c.attr("axis") is None:
        x = c.emit.reshape(x, (math.prod(c.shape(0)),))
    else:
        axis = c.axis()
    condition = c.input(1)
    if not isinstance(condition, ConstantValue):
        # Elements without a condition are not taken.
        length = min(math.prod(c.shape(1)), x.shape[axis])
        mask = c.emit.reshape(condition, (math.prod(c.shape(1)),))
        indices, count = _true_indices(c, c.emit.slice(mask, [0], [length]))
        return c.emit.counted(c.emit.gather_along(x, axis, indices), axis, count)
    keep = condition.array.reshape(-1)
    if not keep.any():
        raise NotSupportedError("a tensor without elements")
    return c.emit.gather(x, axis, np.nonzero(keep)[0])


def _unique(c: NodeContext) -> Sequence[OnnxValue]:
    """Emit the different slices along an axis, or the different elements."""
    emit, x, axis = c.emit, c.input(0), 0
    if c.attr("axis") is None:
        x = emit.reshape(x, (math.prod(c.shape(0)),))
    else:
        axis = c.axis()
    order = (axis, *(k for k in range(len(x.shape)) if k != axis))
    size = x.shape[axis]
    moved = emit.transpose(x, order)
    rows = emit.reshape(moved, (size, math.prod(x.shape) // size))
    kinds = (TensorType((), INT32),) * 4
    attrs = UniqueAttrs(ascending=bool(c.attr("sorted", 1)))
    first, inverse, counts, number = emit.multi_call(
        "unique_rows", rows, declared=kinds, attrs=attrs
    )
    results: list[OnnxValue] = [
        emit.counted(emit.gather_along(x, axis, first), axis, number),
        emit.counted(emit.cast(first, INT64), 0, number),
        emit.cast(inverse, INT64),
        emit.counted(emit.cast(counts, INT64), 0, number),
    ]
    return results[: len(c.outputs)]


def _arg_min_max(least: bool, c: NodeContext) -> OnnxValue:
    axis = c.axis(0)
    shape = c.shape(0)
    last = bool(c.attr("select_last_index", 0))
    attrs = ArgMinMaxAttrs(axis=axis, least=least, last=last)
    y = c.emit.call("arg_min_max", c.input(0), attrs=attrs, result=INT64)
    if not c.attr("keepdims", 1):
        return y
    return c.emit.reshape(y, (*shape[:axis], 1, *shape[axis + 1 :]))


def _top_k(c: NodeContext) -> Sequence[OnnxValue]:
    axis = c.axis(-1)
    shape = c.shape(0)
    k = int(c.scalar(1, "counts"))
    result_shape = (*shape[:axis], k, *shape[axis + 1 :])
    kinds = (TensorType(result_shape, c.dtype(0)), TensorType(result_shape, INT64))
    attrs = TopKAttrs(axis=axis, k=k, least=not c.attr("largest", 1))
    return c.emit.multi_call("top_k", c.input(0), declared=kinds, attrs=attrs)


def _cumulative(step: CumulativeStep, c: NodeContext) -> OnnxValue:
    axis = normalize_axis(int(c.scalar(1, "axes")), c.rank)
    exclusive = bool(c.attr("exclusive", 0))
    reverse = bool(c.attr("reverse", 0))
    attrs = CumulativeAttrs(axis=axis, step=step, exclusive=exclusive, reverse=reverse)
    return c.emit.call("cumulative", c.input(0), attrs=attrs)


def _tensor_scatter(c: NodeContext) -> OnnxValue:
    """Write new rows into a cache, starting at one index per sample."""
    cache, update, axis = c.input(0), c.input(1), c.axis(-2)
    count = c.shape(0)[0]
    length = c.shape(0)[axis]
    new = c.shape(1)[axis]
    steps = c.emit.const(np.arange(new, dtype=np.int64), "steps")
    if c.has(2):
        start = c.emit.reshape(c.emit.cast(c.input(2), INT64), (count, 1))
    else:
        start = c.emit.const(np.zeros((count, 1), np.int64), "starts")
    circular = c.attr("mode", "linear") == "circular"
    formula = f"(a + b) % int64({length})" if circular else "a + b"
    line = [count, *(1,) * (c.rank - 1)]
    line[axis] = new
    places = c.emit.reshape(c.emit.expression(formula, start, steps), line)
    inputs = (cache, c.emit.broadcast(places, c.shape(1)), update)
    attrs = DynamicScatterAttrs(mode="elements", axis=axis, step="none")
    return c.emit.call("dynamic_scatter", *inputs, attrs=attrs)


def _col2im(c: NodeContext) -> OnnxValue:
    """Add the elements of all windows to an image with padding, which is cut off."""
    image, window = c.ints(1, "image shapes"), c.ints(2, "block shapes")
    rank, taps = len(image), math.prod(window)
    samples, rows, places = c.shape(0)
    pads = c.attr("pads") or (0,) * 2 * rank
    strides = c.attr("strides") or (1,) * rank
    dilations = c.attr("dilations") or (1,) * rank
    if min(*image, *window, *strides, *dilations) < 1 or min(pads) < 0:
        raise NotSupportedError("sizes below 1 or padding below 0")
    padded = [n + pads[k] + pads[k + rank] for k, n in enumerate(image)]
    counts: list[int] = []
    for size, extent, dilation, step in zip(
        padded, window, dilations, strides, strict=True
    ):
        counts.append((size - dilation * (extent - 1) - 1) // step + 1)
    if math.prod(counts) != places or rows % taps:
        raise NotSupportedError(f"columns {list(c.shape(0))} of an image {list(image)}")
    check_result_bytes(math.prod(padded) * samples * rows * c.dtype(0).size_bytes)
    indices = np.zeros((taps, places), np.int64)
    tap_grid, place_grid = np.indices(window), np.indices(counts)
    for axis, size in enumerate(padded):
        starts = place_grid[axis].reshape(1, -1) * strides[axis]
        at = tap_grid[axis].reshape(-1, 1) * dilations[axis] + starts
        indices = indices * size + at
    channels = rows // taps
    emit = c.emit
    columns = emit.reshape(c.input(0), (samples, channels, taps, places))
    updates = emit.reshape(
        emit.transpose(columns, (2, 3, 0, 1)), (taps * places, samples * channels)
    )
    table = emit.const(indices.reshape(-1, 1).astype(np.int32), "places")
    attrs = ShapeAttrs(shape=(math.prod(padded), samples * channels))
    kind = TensorType((), c.dtype(0))
    sums = emit.call("scatter_nd", table, updates, attrs=attrs, result=kind)
    whole = emit.reshape(sums, (*padded, samples, channels))
    inner = emit.slice(whole, (*pads[:rank], 0, 0), (*image, samples, channels))
    return emit.transpose(inner, (rank, rank + 1, *range(rank)))


IMPORTERS: Mapping[str, Importer] = {
    "ArgMax": partial(_arg_min_max, False),
    "ArgMin": partial(_arg_min_max, True),
    "Col2Im": _col2im,
    "Compress": _compress,
    "CumProd": partial(_cumulative, "mul"),
    "CumSum": partial(_cumulative, "add"),
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_slices,
    "NonZero": _non_zero,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_slices,
    "TensorScatter": _tensor_scatter,
    "TopK": _top_k,
    "Unique": _unique,
}
