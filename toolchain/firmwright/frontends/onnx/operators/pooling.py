"""ONNX's pools: max_pool2d and average_pool2d if equivalent, else N-d pooling."""

import itertools
import math
from collections.abc import Mapping
from functools import partial
from itertools import chain
from typing import Literal

import numpy as np

from firmwright.base.dtypes import FLOAT32, FLOAT64, INT8, INT64
from firmwright.base.errors import NotSupportedError
from firmwright.base.resource_limits import TENSOR_BYTES_MAX
from firmwright.base.rounding import divide_up
from firmwright.frontends.onnx.node_context import Importer, NodeContext, OnnxValue
from firmwright.frontends.onnx.operators.conv import (
    Window,
    rows_and_columns,
    to_nchw,
    to_nhwc,
    window_geometry,
)
from firmwright.frontends.onnx.operators.reductions import emit_mean
from firmwright.ir.graph.attributes.layers import PoolAttrs, PoolKind, PoolNdAttrs
from firmwright.ir.graph.attributes.movement import DynamicScatterAttrs
from firmwright.ir.graph.attributes.values import ArgMinMaxAttrs, AxesAttrs
from firmwright.ir.graph.nodes import TensorType

_INDEX_ENTRIES_MAX = 1 << 20
"""The most elements of an image's windows among which maxima have indices."""


def _output_sizes(c: NodeContext, window: Window) -> tuple[int, ...]:
    inputs = c.shape(0)[2:]
    if not c.attr("ceil_mode", 0):
        return window.outputs(inputs)
    counts = []
    for n, k, s, d, p, q in window.axes(inputs):
        count = divide_up(n + p + q - (k - 1) * d - 1, s) + 1
        # A window that would begin after the input and its leading padding is dropped.
        counts.append(count - 1 if (count - 1) * s >= n + p else count)
    return tuple(counts)


def pool_window(c: NodeContext) -> Window:
    shape, size = c.shape(0), c.attr("kernel_shape")
    if len(shape) < 3:
        raise NotSupportedError(f"a pool over {len(shape)} dimensions")
    if size is None:
        raise NotSupportedError("pooling without a window size")
    return window_geometry(c, tuple(size), shape[2:])


def _pool(kind: PoolKind, c: NodeContext) -> OnnxValue:
    window = pool_window(c)
    if _is_image_pool(c, kind, window, _output_sizes(c, window)):
        return _image_pool(c, kind, window)
    return emit_pool(kind, c, window)


def emit_pool(
    kind: PoolKind,
    c: NodeContext,
    window: Window,
    result: TensorType | None = None,
    *,
    term: str | None = None,
    final: str | None = None,
) -> OnnxValue:
    """Emit a pool over any axes; `term` and `final` are formulas of `PoolNdAttrs`.

    If `count_include_pad` is set, quantized results count elements beyond the padding
    too.
    """
    outputs = _output_sizes(c, window)
    match kind:
        case "max":
            is_defined = not c.dtype(0).is_float
        case "average":
            is_defined = bool(c.attr("count_include_pad", 0))
        case _:
            is_defined = True
    if not is_defined and _covers_padding_only(window, c.shape(0)[2:], outputs):
        raise NotSupportedError("a window that covers padding only")
    padded: tuple[int, ...] | None = None
    if kind == "average":
        ends = window.size if result else window.after
        pairs = zip(window.before, ends, strict=True)
        counts = c.attr("count_include_pad", 0)
        padded = tuple(chain.from_iterable(pairs)) if counts else ()
    attrs = PoolNdAttrs(
        kind=kind,
        size=window.size,
        stride=window.stride,
        dilation=window.dilation,
        before=window.before,
        outputs=outputs,
        padded=padded,
        term=term,
        final=final,
    )
    return c.emit.call("pool_nd", c.input(0), attrs=attrs, result=result)


def _covers_padding_only(
    window: Window, inputs: tuple[int, ...], outputs: tuple[int, ...]
) -> bool:
    """Return whether some window has no element of the input."""
    axes = zip(window.axes(inputs), outputs, strict=True)
    for (length, size, stride, dilation, before, _), count in axes:
        for first in range(-before, count * stride - before, stride):
            taps = range(first, first + size * dilation, dilation)
            if not any(0 <= tap < length for tap in taps):
                return True
    return False


def _norm_formulas(c: NodeContext) -> tuple[str, str]:
    p = int(c.attr("p", 2))
    if p < 1:
        raise NotSupportedError(f"a norm with p of {p}")
    powers = {1: ("abs(a)", "a"), 2: ("a * a", "sqrt(a)")}
    return powers.get(p, (f"pow(abs(a), {float(p)!r})", f"pow(a, {1 / p!r})"))


def _norm_pool(c: NodeContext) -> OnnxValue:
    term, root = _norm_formulas(c)
    return emit_pool("sum", c, pool_window(c), term=term, final=root)


def _is_image_pool(
    c: NodeContext, kind: str, window: Window, outputs: tuple[int, ...]
) -> bool:
    """Return whether image operators, which exclude padding, give the same result."""
    shape = c.shape(0)
    x = c.emit.value(c.input(0)).type
    stored = x.dtype == INT8 and x.quantization is not None
    if x.dtype != FLOAT32 and not stored:
        return False
    if len(shape) > 4 or set(window.dilation) != {1}:
        return False
    padding = (*window.before, *window.after)
    if kind == "average" and c.attr("count_include_pad", 0) and any(padding):
        return False
    pairs = zip(padding, (*window.size, *window.size), strict=True)
    if any(margin >= size for margin, size in pairs):
        return False
    return outputs == window.outputs(shape[2:])


def _image_pool(c: NodeContext, kind: str, window: Window) -> OnnxValue:
    size = rows_and_columns(window.size, 1)
    image = window.of_image
    attrs: PoolAttrs
    if kind == "average":
        attrs = image.average_pool_attrs(size, "none")
    else:
        attrs = image.pool_attrs(size, "none")
    y = c.emit.call(f"{kind}_pool2d", to_nhwc(c.emit, c.input(0)), attrs=attrs)
    return to_nchw(c.emit, y, c.rank)


def _max_pool(c: NodeContext) -> OnnxValue | list[OnnxValue]:
    if len(c.outputs) > 1 and c.outputs[1]:
        return [_pool("max", c), _indices_of_maxima(c)]
    return _pool("max", c)


def _indices_of_maxima(c: NodeContext) -> OnnxValue:
    """Return the places of the maxima in the flat tensor, int64 [n, c, outputs...].

    A window is a row of taps for each output. Those outside of the input are replaced
    by its first tap inside, which is greater than none and comes first among equals.
    """
    window, emit = pool_window(c), c.emit
    inputs, outputs = c.shape(0)[2:], _output_sizes(c, window)
    if _covers_padding_only(window, inputs, outputs):
        raise NotSupportedError("a window that covers padding only")
    entries = math.prod(window.size) * math.prod(outputs)
    if entries > _INDEX_ENTRIES_MAX:
        raise NotSupportedError(f"the indices of a MaxPool of {entries} elements")
    taps = np.array(list(itertools.product(*map(range, window.size))))
    at = np.stack([axis.reshape(-1) for axis in np.indices(outputs)])
    places = (at.T * window.stride - window.before)[None] + taps[:, None] * (
        np.array(window.dilation)
    )
    is_inside = ((places >= 0) & (places < inputs)).all(axis=2)
    first = np.take_along_axis(places, is_inside.argmax(axis=0)[None, :, None], 0)
    places = np.where(is_inside[:, :, None], places, first).transpose(2, 0, 1)
    order: Literal["C", "F"] = "F" if c.attr("storage_order", 0) else "C"
    flat = np.ravel_multi_index(tuple(places), inputs)
    stated = np.ravel_multi_index(tuple(places), inputs, order=order)
    images, elements = math.prod(c.shape(0)[:2]), math.prod(inputs)
    rows = emit.reshape(c.input(0), (images, elements))
    windows = emit.gather(rows, 1, flat)
    attrs = ArgMinMaxAttrs(axis=1, least=False, last=False)
    tap = emit.call("arg_min_max", windows, attrs=attrs, result=INT64)
    columns = emit.const(np.arange(flat.shape[1]), "columns")
    entry = emit.expression(f"a * int64({flat.shape[1]}) + b", tap, columns)
    table = emit.const(stated.reshape(-1), "places")
    begins = emit.const(np.arange(images)[:, None] * elements, "images")
    chosen = emit.expression("a + b", emit.gather_along(table, 0, entry), begins)
    return emit.reshape(chosen, (*c.shape(0)[:2], *outputs))


def _max_unpool(c: NodeContext) -> OnnxValue:
    """Put the values at their places in a tensor of zeros."""
    x, places, emit = c.input(0), c.input(1), c.emit
    if c.has(2):
        shape = tuple(int(size) for size in c.array(2, "shapes").reshape(-1))
    else:
        rank = c.rank - 2
        stride = c.attr("strides") or (1,) * rank
        pads = c.attr("pads") or (0,) * (2 * rank)
        sizes = zip(x.shape[2:], stride, c.attr("kernel_shape"), strict=True)
        spatial: list[int] = []
        for axis, (count, step, size) in enumerate(sizes):
            margin = pads[axis] + pads[axis + rank]
            spatial.append((count - 1) * step + size - margin)
        shape = (*x.shape[:2], *spatial)
    count = math.prod(shape)
    if min(shape) < 1 or count > TENSOR_BYTES_MAX:
        raise NotSupportedError(f"a result of shape {list(shape)}")
    zeros = emit.const(np.zeros(count, c.dtype(0).np), "zeros")
    values = emit.reshape(x, (math.prod(x.shape),))
    flat = emit.reshape(places, values.shape)
    attrs = DynamicScatterAttrs(mode="elements", axis=0, step="none")
    y = emit.call("dynamic_scatter", zeros, flat, values, attrs=attrs)
    return emit.reshape(y, shape)


def _global_pool(op: str, result: str, c: NodeContext) -> OnnxValue:
    axes, x = tuple(range(2, c.rank)), c.input(0)
    if c.dtype(0) == FLOAT64:
        return (
            emit_mean(c, x, axes)
            if op == "mean"
            else c.emit.reduction("a", "max", axes, x)
        )
    if c.dtype(0) != FLOAT32:
        raise NotSupportedError(f"{result} of {c.dtype(0).name}")
    return c.emit.call(op, x, attrs=AxesAttrs(axes=axes, keep_dims=True))


def _global_norm(c: NodeContext) -> OnnxValue:
    formula, root = _norm_formulas(c)
    total = c.emit.reduction(formula, "add", range(2, c.rank), c.input(0))
    return c.emit.expression(root, total)


def _local_response(c: NodeContext) -> OnnxValue:
    """Return x / (bias + alpha / size * sum of squares) ^ beta.

    The squares are those of `size` adjacent channels.
    """
    x = c.input(0)
    size = int(c.attr("size"))
    shape = c.shape(0)
    if size < 1 or c.rank < 2:
        raise NotSupportedError(f"{size} channels of {c.rank} dimensions")
    before = (size - 1) // 2
    extents = (shape[1], math.prod(shape[2:]))
    square = c.emit.expression("a * a", c.emit.reshape(x, (shape[0], 1, *extents)))
    attrs = PoolNdAttrs(
        kind="average",
        size=(size, 1),
        stride=(1, 1),
        dilation=(1, 1),
        before=(before, 0),
        outputs=extents,
        padded=(before, size - 1 - before, 0, 0),
    )
    mean = c.emit.call("pool_nd", square, attrs=attrs)
    alpha = float(c.attr("alpha", 1e-4))
    beta = float(c.attr("beta", 0.75))
    bias = float(c.attr("bias", 1.0))
    formula = f"a / pow({bias!r} + {alpha!r} * b, {beta!r})"
    return c.emit.expression(formula, x, c.emit.reshape(mean, shape))


IMPORTERS: Mapping[str, Importer] = {
    "AveragePool": partial(_pool, "average"),
    "GlobalAveragePool": partial(_global_pool, "mean", "a mean"),
    "GlobalLpPool": _global_norm,
    "GlobalMaxPool": partial(_global_pool, "reduce_max", "an extreme"),
    "LRN": _local_response,
    "LpPool": _norm_pool,
    "MaxPool": _max_pool,
    "MaxUnpool": _max_unpool,
}
