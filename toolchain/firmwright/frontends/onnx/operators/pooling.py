"""Pooling: max_pool2d and average_pool2d if they compute the same, else N-d pooling.

Source of the semantics: ONNX's MaxPool, AveragePool, LpPool and their global forms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from firmwright.base.dtypes import FLOAT32, INT8
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.onnx.call_emitter import OnnxValue
from firmwright.frontends.onnx.node_context import Importer, NodeContext
from firmwright.frontends.onnx.operators.convolutions import (
    WindowGeometry,
    to_nchw,
    to_nhwc,
    window_attrs,
    window_geometry,
)
from firmwright.ir.core import Attr


def _output_sizes(c: NodeContext, window: WindowGeometry) -> tuple[int, ...]:
    inputs = c.shape(0)[2:]
    if c.attr("auto_pad", "NOTSET").startswith("SAME"):
        return tuple(-(-n // s) for n, s in zip(inputs, window.stride, strict=True))
    if not c.attr("ceil_mode", 0):
        return window.outputs(inputs)
    counts = []
    rows = zip(
        inputs, window.size, window.stride, window.dilation, window.before, window.after,
        strict=True,
    )  # fmt: skip
    for n, k, s, d, p, q in rows:
        count = -(-(n + p + q - (k - 1) * d - 1) // s) + 1
        # A window that would begin after the input and its leading padding is dropped.
        counts.append(count - 1 if (count - 1) * s >= n + p else count)
    return tuple(counts)


def _pool(c: NodeContext, kind: str) -> OnnxValue:
    shape = c.shape(0)
    if len(shape) < 3:
        raise NotSupportedError(f"a pool over {len(shape)} dimensions")
    size = c.attr("kernel_shape")
    if size is None:
        raise NotSupportedError("pooling without a window size")
    window = window_geometry(c, tuple(size), shape[2:])
    outputs = _output_sizes(c, window)
    if _is_image_pool(c, kind, window, outputs):
        return _image_pool(c, kind, window)
    attrs: dict[str, Attr] = {
        "kind": kind, "size": window.size, "stride": window.stride, "dilation": window.dilation,
        "before": window.before, "outputs": outputs,
    }  # fmt: skip
    if kind == "average":
        pairs = zip(window.before, window.after, strict=True)
        counts = c.attr("count_include_pad", 0)
        attrs["padded"] = tuple(n for pair in pairs for n in pair) if counts else ()
    if kind == "norm":
        attrs["order"] = int(c.attr("p", 2))
    return c.emit.call("pool_nd", [c.input(0)], attrs)


def _is_image_pool(
    c: NodeContext, kind: str, window: WindowGeometry, outputs: tuple[int, ...]
) -> bool:
    """Return whether the image operators, which exclude padding, compute the same."""
    shape = c.shape(0)
    x = c.emit.value(c.input(0)).type
    stored = x.dtype == INT8 and x.quantization is not None
    if x.dtype != FLOAT32 and not stored:
        return False
    if kind == "norm" or len(shape) > 4 or set(window.dilation) != {1}:
        return False
    padding = (*window.before, *window.after)
    if kind == "average" and c.attr("count_include_pad", 0) and any(padding):
        return False
    sizes = (*window.size, *window.size)
    if any(p >= k for p, k in zip(padding, sizes, strict=True)):
        return False
    return outputs == window.outputs(shape[2:])


def _image_pool(c: NodeContext, kind: str, window: WindowGeometry) -> OnnxValue:
    rows = (1,) if len(window.size) == 1 else ()
    attrs = {
        "size": (*rows, *window.size), "activation": "none", **window_attrs(window)
    }  # fmt: skip
    image = to_nhwc(c.emit, c.input(0))
    return to_nchw(c.emit, c.emit.call(f"{kind}_pool2d", [image], attrs), len(c.shape(0)))


def _max_pool(c: NodeContext) -> OnnxValue:
    if len(c.outputs) > 1 and c.outputs[1]:
        raise NotSupportedError("the indices of a MaxPool")
    return _pool(c, "max")


def _average_pool(c: NodeContext) -> OnnxValue:
    return _pool(c, "average")


def emit_int8_average_pool(c: NodeContext) -> OnnxValue | None:
    """Emit an AveragePool of int8 values with unchanged scale; return None if unsupported."""
    window = window_geometry(c, tuple(c.attr("kernel_shape")), c.shape(0)[2:])
    if not _is_image_pool(c, "average", window, _output_sizes(c, window)):
        return None
    return _image_pool(c, "average", window)


def _lp_pool(c: NodeContext) -> OnnxValue:
    return _pool(c, "norm")


def _spatial_axes(c: NodeContext) -> tuple[int, ...]:
    return tuple(range(2, len(c.shape(0))))


def _global_average(c: NodeContext) -> OnnxValue:
    if c.dtype(0) != FLOAT32:
        raise NotSupportedError(f"a mean of {c.dtype(0).name}")
    return c.emit.call("mean", [c.input(0)], {"axes": _spatial_axes(c), "keep_dims": True})


def _global_max(c: NodeContext) -> OnnxValue:
    if c.dtype(0) != FLOAT32:
        raise NotSupportedError(f"an extreme of {c.dtype(0).name}")
    return c.emit.call("reduce_max", [c.input(0)], {"axes": _spatial_axes(c), "keep_dims": True})


def _global_norm(c: NodeContext) -> OnnxValue:
    order = int(c.attr("p", 2))
    attrs: dict[str, Attr] = {
        "formula": "a * a" if order == 2 else f"pow(abs(a), {float(order)})",
        "step": "add", "axes": _spatial_axes(c), "keep_dims": True,
    }  # fmt: skip
    total = c.emit.call("reduction", [c.input(0)], attrs)
    root = "sqrt(a)" if order == 2 else f"pow(a, {1 / order!r})"
    return c.emit.expression(root, total)


def _local_response(c: NodeContext) -> OnnxValue:
    """Return x / (bias + alpha / size * sum of squares of `size` adjacent channels) ^ beta."""
    x, size = c.input(0), int(c.attr("size"))
    shape = c.shape(0)
    before = (size - 1) // 2
    line = c.emit.reshape(x, (shape[0], 1, shape[1], math.prod(shape[2:])))
    square = c.emit.expression("a * a", line)
    attrs: dict[str, Attr] = {
        "kind": "average", "size": (size, 1), "stride": (1, 1), "dilation": (1, 1),
        "before": (before, 0), "outputs": (shape[1], math.prod(shape[2:])),
        "padded": (before, size - 1 - before, 0, 0),
    }  # fmt: skip
    mean = c.emit.reshape(c.emit.call("pool_nd", [square], attrs), shape)
    alpha, beta, bias = (
        float(c.attr(name, default))
        for name, default in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    )
    return c.emit.expression(f"a / pow({bias!r} + {alpha!r} * b, {beta!r})", x, mean)


IMPORTERS: Mapping[str, Importer] = {
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_average,
    "GlobalLpPool": _global_norm,
    "GlobalMaxPool": _global_max,
    "LRN": _local_response,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
}
