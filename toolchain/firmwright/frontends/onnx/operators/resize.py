"""Resize and Upsample, axis by axis: a gather for nearest neighbor, else weighted taps."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.onnx.node_context import Importer, NodeContext, OnnxValue, vector_shape


def _coordinates(
    c: NodeContext, axis: int, length: int, outputs: int, scale: float, dtype: Any = np.float64
) -> Array:
    x = np.arange(outputs, dtype=dtype)
    match c.attr("coordinate_transformation_mode", "half_pixel"):
        case "half_pixel":
            return (x + 0.5) / scale - 0.5
        case "half_pixel_symmetric":
            adjustment = outputs / (scale * length)
            middle = length / 2
            return middle * (1 - adjustment) + (x + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (x + 0.5) / scale - 0.5 if outputs > 1 else np.zeros(1)
        case "align_corners":
            # The scaled length, which need not be an integer.
            return x * (length - 1) / (scale * length - 1) if outputs > 1 else np.zeros(1)
        case "asymmetric":
            return x / scale
        case "tf_crop_and_resize":
            start, end = _region(c, axis)
            if outputs == 1:
                return np.array([0.5 * (start + end) * (length - 1)])
            return start * (length - 1) + x * (end - start) * (length - 1) / (outputs - 1)
    raise NotSupportedError(f"coordinates by {c.attr('coordinate_transformation_mode')!r}")


def _region(c: NodeContext, axis: int) -> tuple[float, float]:
    starts, ends = c.array(1, "regions").reshape(2, -1)
    place = _axes(c).index(axis)
    return float(starts[place]), float(ends[place])


def _axes(c: NodeContext) -> list[int]:
    return [int(axis) % c.rank for axis in c.attr("axes") or range(c.rank)]


def _nearest(c: NodeContext, places: Array, length: int) -> Array:
    nearest = {
        "round_prefer_floor": np.ceil(places - 0.5), "round_prefer_ceil": np.floor(places + 0.5),
        "floor": np.floor(places), "ceil": np.ceil(places),
    }  # fmt: skip
    mode = c.attr("nearest_mode", "round_prefer_floor")
    if mode not in nearest:
        raise NotSupportedError(f"nearest by {mode!r}")
    return np.clip(nearest[mode], 0, length - 1).astype(np.int64)


def _taps(c: NodeContext, mode: str, places: Array, scale: float) -> tuple[Array, Array]:
    """Return indices, not clipped to the input, and weights, each [outputs, taps]."""
    stretch = max(1.0, 1.0 / scale) if c.attr("antialias", 0) else 1.0
    reach = (1 if mode == "linear" else 2) * stretch
    count = int(np.ceil(2 * reach))
    first = np.floor(places - reach) + 1
    at = first[:, None] + np.arange(count)
    distance = np.abs(at - places[:, None]) / stretch
    if mode == "linear":
        return at, np.maximum(0, 1 - distance)
    a = float(c.attr("cubic_coeff_a", -0.75))
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return at, np.where(distance <= 1, near, np.where(distance < 2, far, 0))


def _emit_interpolation(
    c: NodeContext, x: OnnxValue, axis: int, mode: str, places: Array, scale: float
) -> OnnxValue:
    length = x.shape[axis]
    outside = (places < 0) | (places > length - 1)
    at, weights = _taps(c, mode, places, scale)
    beyond = (at < 0) | (at >= length)
    if c.attr("exclude_outside", 0):
        weights = np.where(beyond, 0, weights)
    if c.attr("exclude_outside", 0) or c.attr("antialias", 0):
        weights = weights / weights.sum(axis=1, keepdims=True)
    at = np.clip(at, 0, length - 1).astype(np.uint16)
    taps = c.emit.const(weights.astype(np.float32), f"weights{axis}")
    y = c.emit.call("resample", x, c.emit.const(at, f"places{axis}"), taps, axis=axis)
    if c.attr("coordinate_transformation_mode") == "tf_crop_and_resize" and outside.any():
        line = outside.reshape(vector_shape(len(places), axis, c.rank))
        mask = c.emit.const(line, f"outside{axis}")
        filler = float(np.float32(c.attr("extrapolation_value", 0.0)))
        y = c.emit.expression(f"where(b, {filler!r}, a)", y, mask)
    return y


def _sizes(c: NodeContext, shape: Sequence[int]) -> tuple[list[int], list[float]]:
    axes = _axes(c)
    sizes, scales = list(shape), [1.0] * len(shape)
    if c.has(3) and c.shape(3) != (0,):
        lengths = c.ints(3, "sizes")
        factors = [n / shape[axis] for axis, n in zip(axes, lengths, strict=True)]
        policy = c.attr("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factor = min(factors) if policy == "not_larger" else max(factors)
            for axis in axes:
                scales[axis] = factor
                sizes[axis] = int(np.floor(factor * shape[axis] + 0.5))
        else:
            for axis, n, factor in zip(axes, lengths, factors, strict=True):
                sizes[axis], scales[axis] = n, factor
        return sizes, scales
    for axis, factor in zip(axes, c.array(2, "scales").reshape(-1), strict=True):
        scales[axis] = float(factor)
        sizes[axis] = int(np.floor(shape[axis] * float(factor)))
    return sizes, scales


def _resized(c: NodeContext, mode: str, sizes: Sequence[int], scales: Sequence[float]) -> OnnxValue:
    x = c.input(0)
    crops = c.attr("coordinate_transformation_mode") == "tf_crop_and_resize"
    for axis, (n, outputs, scale) in enumerate(zip(c.shape(0), sizes, scales, strict=True)):
        if scale == 1 and n == outputs and not (crops and axis in _axes(c)):
            continue
        places = _coordinates(c, axis, n, outputs, scale)
        if mode == "nearest":
            x = c.emit.gather(x, axis, _nearest(c, places, n))
        elif mode in ("linear", "cubic"):
            x = _emit_interpolation(c, x, axis, mode, places, scale)
        else:
            raise NotSupportedError(f"a resize of mode {mode!r}")
    return x


def emit_bilinear(c: NodeContext, x: OnnxValue) -> OnnxValue | None:
    """Emit ONNX Runtime's sum of four products in float32; return None for other resizes."""
    if len(x.shape) != 4:
        return None
    batch, channels, height, width = x.shape
    sizes, scales = _sizes(c, x.shape)
    plain = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    if (
        c.attr("mode") != "linear" or c.attr("antialias", 0)
        or sizes[:2] != [batch, channels] or height * width >= 1 << 16
        or c.attr("coordinate_transformation_mode", "half_pixel") not in plain
    ):  # fmt: skip
        return None
    ends, parts = [], []
    for axis, n in ((2, height), (3, width)):
        at = _coordinates(c, axis, n, sizes[axis], scales[axis], np.float32).clip(0, n - 1)
        first = at.astype(np.int64)
        last = np.minimum(first + 1, n - 1)
        shares = np.abs(np.stack([at - last, at - first])).astype(np.float32)
        ends.append(np.stack([first, last]))
        parts.append(np.where(first == last, np.float32(0.5), shares))
    # [outputs, (y1 x1, y1 x2, y2 x1, y2 x2)]
    places, weights = (
        np.moveaxis(combine(y[:, None, :, None], z[None, :, None, :]), (0, 1), (2, 3))
        for combine, (y, z) in ((lambda a, b: a * width + b, ends), (np.multiply, parts))
    )
    y = c.emit.call(
        "resample", c.emit.reshape(x, (batch, channels, height * width)),
        c.emit.const(places.reshape(-1, 4).astype(np.uint16), "places"),
        c.emit.const(weights.reshape(-1, 4), "weights"), axis=2,
    )  # fmt: skip
    return c.emit.reshape(y, sizes)


def _upsample(c: NodeContext) -> OnnxValue:
    scales = [float(factor) for factor in c.array(1, "scales").reshape(-1)]
    if c.attr("mode", "nearest") != "nearest":
        raise NotSupportedError("an Upsample of a mode other than nearest")
    x = c.input(0)
    for axis, (n, scale) in enumerate(zip(c.shape(0), scales, strict=True)):
        outputs = int(np.floor(n * scale))
        if n != outputs:
            places = (np.arange(outputs) / scale).astype(np.int64)
            x = c.emit.gather(x, axis, np.minimum(places, n - 1))
    return x


IMPORTERS: Mapping[str, Importer] = {
    "Resize": lambda c: _resized(c, c.attr("mode", "nearest"), *_sizes(c, c.shape(0))),
    "Upsample": _upsample,
}
