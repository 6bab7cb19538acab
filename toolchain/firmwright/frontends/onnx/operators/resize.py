"""Resize and Upsample, axis by axis: a gather for nearest neighbor, else weighted taps.

Sizes and coordinates are computed in float32 as ONNX Runtime does: a product that is
rounded up to a whole number is one more output, and a coordinate that is rounded to a
tie selects its neighbor.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, UINT8, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.resource_limits import check_result_bytes
from firmwright.frontends.onnx.node_context import (
    Importer,
    NodeContext,
    OnnxValue,
    vector_shape,
)
from firmwright.ir.graph.attributes.movement import ResampleAttrs

_TIE_WIDTH = np.float32(1e-6)
"""Distance from half way between inputs within which ONNX Runtime sees a tie."""


_INTEGERS = (INT8, UINT8, INT32)


@dataclass(frozen=True, slots=True)
class _ResizedAxis:
    """An axis of a resized tensor: elements before and after, and the scale."""

    number: int
    length: int
    outputs: int
    scale: np.float32

    @property
    def is_copied(self) -> bool:
        """Whether each output is the input at its index, whatever the coordinates."""
        return bool(self.scale == 1)


def _coordinates(c: NodeContext, axis: _ResizedAxis) -> Array:
    """Return the place of each output among the inputs, [outputs] float32."""
    x = np.arange(axis.outputs, dtype=np.float32)
    half, scale = np.float32(0.5), axis.scale
    length = np.float32(axis.length)
    outputs = np.float32(axis.outputs)
    if axis.is_copied:
        return x
    match c.attr("coordinate_transformation_mode", "half_pixel"):
        case "align_corners" | "pytorch_half_pixel" if outputs == 1:
            return np.zeros(1, np.float32)
        case "half_pixel" | "pytorch_half_pixel":
            return (x + half) / scale - half
        case "half_pixel_symmetric":
            offset = length / 2 * (1 - outputs / (scale * length))
            middles = (x + np.float64(0.5)) / np.float64(scale)
            places = np.float64(offset) + middles - 0.5
            return places.astype(np.float32)
        case "tf_half_pixel_for_nn":
            return (x + half) / scale
        case "align_corners":
            return x * (length - 1) / (outputs - 1)
        case "asymmetric":
            return x / scale
        case "tf_crop_and_resize":
            start, end = _region(c, axis.number)
            if outputs == 1:
                return np.array([half * (start + end) * (length - 1)], np.float32)
            steps = x * (end - start) * (length - 1) / (outputs - 1)
            return start * (length - 1) + steps
    raise NotSupportedError(
        f"coordinates by {c.attr('coordinate_transformation_mode')!r}"
    )


def _region(c: NodeContext, axis: int) -> tuple[np.float32, np.float32]:
    axes = _axes(c)
    if axis not in axes:
        return np.float32(0), np.float32(1)
    starts, ends = c.array(1, "regions").astype(np.float32).reshape(2, -1)
    return starts[axes.index(axis)], ends[axes.index(axis)]


def _axes(c: NodeContext) -> list[int]:
    return [int(axis) % c.rank for axis in c.attr("axes") or range(c.rank)]


def _nearest(c: NodeContext, places: Array, length: int) -> Array:
    below, above = np.floor(places), np.ceil(places)
    share = places - below
    is_tie = np.abs(share - np.float32(0.5)) <= _TIE_WIDTH
    match c.attr("nearest_mode", "round_prefer_floor"):
        case "round_prefer_floor":
            nearest = np.where(is_tie | (share < 0.5), below, above)
        case "round_prefer_ceil":
            nearest = np.where(is_tie | (share > 0.5), above, below)
        case "floor":
            nearest = below
        case "ceil":
            nearest = above
        case mode:
            raise NotSupportedError(f"nearest by {mode!r}")
    return np.clip(nearest, 0, length - 1).astype(np.int64)


def _taps(c: NodeContext, mode: str, axis: _ResizedAxis) -> tuple[Array, Array]:
    """Return indices, not clipped to the input, and weights, each [outputs, taps]."""
    places = _coordinates(c, axis)
    first = np.floor(places)
    share = (places - first)[:, None]
    if mode == "linear":
        offsets = np.arange(2)
        weights = np.concatenate([1 - share, share], axis=1)
    else:
        offsets = np.arange(-1, 3)
        weights = _cubic(c, np.abs(share - offsets.astype(np.float32)))
    at = first[:, None].astype(np.int64) + offsets
    if c.attr("exclude_outside", 0):
        weights = np.where((at < 0) | (at >= axis.length), np.float32(0), weights)
    return at, weights


def _cubic(c: NodeContext, distance: Array) -> Array:
    a = np.float32(c.attr("cubic_coeff_a", -0.75))
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    if c.attr("antialias", 0):
        far = (((distance - 5) * distance + 8) * distance - 4) * a
    else:
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance < 1, near, np.where(distance < 2, far, np.float32(0)))


def _antialias_taps(
    c: NodeContext, mode: str, axis: _ResizedAxis
) -> tuple[Array, Array]:
    """Return indices and weights [outputs, taps] of a filter as wide as an output.

    The weight of taps outside of the input goes to its ends unless they are excluded,
    or all taps are outside.
    """
    half = np.float32(0.5)
    step = max(np.float32(1), 1 / axis.scale)
    reach = np.float32(1 if mode == "linear" else 2) * step
    rows: list[Array] = []
    for center in _coordinates(c, axis) + half:
        ends = np.floor(center - reach + half), np.floor(center + reach + half)
        at = np.arange(int(ends[0]), int(ends[1]))
        distance = np.abs(at.astype(np.float32) - center + half) * (1 / step)
        linear = np.maximum(1 - distance, np.float32(0))
        weights = linear if mode == "linear" else _cubic(c, distance)
        beyond = (at < 0) | (at >= axis.length)
        if c.attr("exclude_outside", 0) or beyond.all():
            weights = np.where(beyond, np.float32(0), weights)
        total = sum(weights, np.float32(0))  # one after the other
        inside = at.clip(0, axis.length - 1)
        order = np.argsort(inside != at, kind="stable")  # those inside first
        row = np.zeros(axis.length, np.float32)
        np.add.at(row, inside[order], weights[order])
        rows.append(row * (1 / total if total else np.float32(1)))
    return _without_zeros(np.array(rows))


def _without_zeros(table: Array) -> tuple[Array, Array]:
    """Return places and weights of each row, from its first to last nonzero one."""
    used = table != 0
    first = used.argmax(axis=1)
    count = int((table.shape[1] - used[:, ::-1].argmax(axis=1) - first).max())
    at = np.minimum(first, table.shape[1] - count)[:, None] + np.arange(count)
    return at, np.take_along_axis(table, at, axis=1)


def _emit_interpolation(
    c: NodeContext, x: OnnxValue, mode: str, axis: _ResizedAxis
) -> OnnxValue:
    number, emit = axis.number, c.emit
    if x.type.dtype != FLOAT32:
        raise NotSupportedError(f"an interpolation of {x.type.dtype.name}")
    if axis.length > 1 << 16:
        raise NotSupportedError(f"an interpolation among {axis.length} elements")
    is_filter = bool(c.attr("antialias", 0))
    at, weights = (_antialias_taps if is_filter else _taps)(c, mode, axis)
    at = at.clip(0, axis.length - 1)
    totals = sum(weights.T, np.zeros(len(weights), np.float32))[:, None]
    if c.attr("exclude_outside", 0) and not is_filter:
        if number < c.rank - 1:
            return _emit_mean(c, x, number, at, weights, totals)
        weights = weights / np.where(totals == 0, np.float32(1), totals)
    taps = emit.const(weights, f"weights{number}")
    places = emit.const(at.astype(np.uint16), f"places{number}")
    return emit.call("resample", x, places, taps, attrs=ResampleAttrs(axis=number))


def _emit_mean(
    c: NodeContext, x: OnnxValue, number: int, at: Array, weights: Array, totals: Array
) -> OnnxValue:
    """Emit a sum of products, each over the sum of weights, as ONNX Runtime does."""

    def column(values: Array) -> OnnxValue:
        line = values.reshape(vector_shape(len(values), number, c.rank))
        return c.emit.const(line, f"weights{number}")

    taps = range(weights.shape[1])
    operands = [c.emit.gather(x, number, at[:, tap]) for tap in taps]
    operands += [column(weights[:, tap]) for tap in taps]
    operands.append(column(totals))
    formula = "a * e / i + b * f / i + c * g / i + d * h / i"
    return c.emit.expression(formula, *operands)


def _fill_outside(
    c: NodeContext, y: OnnxValue, axes: Sequence[_ResizedAxis]
) -> OnnxValue:
    """Replace a crop's results outside of the input by the extrapolation value."""
    if c.attr("coordinate_transformation_mode") != "tf_crop_and_resize":
        return y
    filler = float(np.float32(c.attr("extrapolation_value", 0.0)))
    for axis in axes:
        places = _coordinates(c, axis)
        outside = (places < 0) | (places > axis.length - 1)
        if outside.any():
            line = outside.reshape(vector_shape(len(places), axis.number, c.rank))
            mask = c.emit.const(line, f"outside{axis.number}")
            y = c.emit.expression(f"where(b, {filler!r}, a)", y, mask)
    return y


def _resized_axes(c: NodeContext) -> list[_ResizedAxis]:
    """Return all axes of input 0 as `scales` or `sizes` define them."""
    shape, axes = c.shape(0), _axes(c)
    by_size = c.has(3) and c.shape(3) != (0,)
    given = c.array(3, "sizes") if by_size else c.array(2, "scales")
    if given.size != len(axes) or not np.isfinite(given).all():
        raise NotSupportedError(f"a resize of {len(axes)} axes by {given.tolist()}")
    outputs = dict(zip(axes, c.ints(3, "sizes"), strict=True)) if by_size else {}
    if by_size:
        factors = [np.float32(outputs[n]) / np.float32(shape[n]) for n in axes]
    else:
        factors = list(given.astype(np.float32).reshape(-1))
    policy = c.attr("keep_aspect_ratio_policy", "stretch")
    if by_size and policy != "stretch":
        if any(axis < 0 for axis in c.attr("axes") or ()):
            # ONNX Runtime 1.32 computes another shape than ONNX defines.
            raise NotSupportedError(f"negative axes with the policy {policy}")
        shared = min(factors) if policy == "not_larger" else max(factors)
        factors = [shared] * len(axes)
        for number in axes:
            size = float(shared * np.float32(shape[number]))
            outputs[number] = int(np.floor(size + 0.5))
    scales = dict(zip(axes, factors, strict=True))
    resized = []
    for number, length in enumerate(shape):
        scale = scales.get(number, np.float32(1))
        count = outputs.get(number, int(scale * np.float32(length)))
        resized.append(_ResizedAxis(number, length, count, scale))
    return resized


def _resized(c: NodeContext) -> OnnxValue:
    x = c.input(0)
    mode = c.attr("mode", "nearest")
    axes = _resized_axes(c)
    if min(axis.outputs for axis in axes) < 1:
        raise NotSupportedError("a tensor without elements")
    count = math.prod(axis.outputs for axis in axes)
    check_result_bytes(count * x.type.dtype.size_bytes)
    if mode == "cubic" and len(axes) not in (2, 3, 4):
        # ONNX Runtime refuses it, too.
        raise NotSupportedError(f"a cubic resize of {len(axes)} dimensions")
    if all(axis.outputs == axis.length for axis in axes):
        return x
    if mode != "nearest" and x.type.dtype in _INTEGERS:
        return _interpolate_integers(c)
    scaled = [axis for axis in axes if not axis.is_copied]
    for axis in scaled[::-1]:
        if c.attr("antialias", 0) and axis.outputs == axis.length:
            continue  # as ONNX Runtime does, whatever the scale
        if mode == "nearest":
            places = _nearest(c, _coordinates(c, axis), axis.length)
            x = c.emit.gather(x, axis.number, places)
        elif mode in ("linear", "cubic"):
            x = _emit_interpolation(c, x, mode, axis)
        else:
            raise NotSupportedError(f"a resize of mode {mode!r}")
    return _fill_outside(c, x, scaled)


def _interpolate_integers(c: NodeContext) -> OnnxValue:
    """Truncate the float32 sums of products of integers, as ONNX Runtime does."""
    kind = c.input(0).type.dtype
    axes = _resized_axes(c)
    if len(axes) == 4 and not axes[1].is_copied and kind != INT32:
        # ONNX Runtime computes it with weights of 10 bits.
        raise NotSupportedError(
            f"an interpolation of {kind.name} with channels last; transpose x around "
            "the Resize, or quantize it (QDQ)"
        )
    sums = emit_linear_sum(c, c.emit.cast(c.input(0), FLOAT32))
    if sums is None:
        raise NotSupportedError(
            f"an interpolation of {kind.name} that is not linear of two or three axes"
        )
    return c.emit.cast(sums, kind)


def emit_linear_sum(c: NodeContext, x: OnnxValue) -> OnnxValue | None:
    """Emit ONNX Runtime's sum of 4 or 8 float32 products; None for other resizes."""
    axes = _resized_axes(c)
    spatial = _jointly_resized_axes(axes)
    elements = math.prod(axis.length for axis in spatial)
    unchanged = all(axis.is_copied for axis in axes if axis not in spatial)
    if (
        c.attr("mode") != "linear"
        or c.attr("antialias", 0)
        or not spatial
        or not unchanged
        or elements >= 1 << 16
        or min(axis.outputs for axis in axes) < 1
        or all(axis.outputs == axis.length for axis in axes)
    ):
        return None
    # Both are [outputs, 1 << axes]; along the corners, the last axis varies fastest.
    places = np.zeros((1, 1), np.int64)
    weights = np.ones((1, 1), np.float32)
    for axis in spatial[::-1]:
        inner = [other.length for other in spatial if other.number > axis.number]
        step = math.prod(inner)
        ends, shares = _linear_ends(c, axis)
        places = _outer(np.add, ends * step, places)
        weights = _outer(np.multiply, shares, weights)
    before = x.shape[: spatial[0].number]
    after = x.shape[spatial[-1].number + 1 :]
    rows = c.emit.reshape(x, (math.prod(before), elements, math.prod(after)))
    indices = c.emit.const(places.astype(np.uint16), "places")
    taps = c.emit.const(weights, "weights")
    y = c.emit.call("resample", rows, indices, taps, attrs=ResampleAttrs(axis=1))
    y = c.emit.reshape(y, [axis.outputs for axis in axes])
    return _fill_outside(c, y, spatial)


def _jointly_resized_axes(axes: Sequence[_ResizedAxis]) -> Sequence[_ResizedAxis]:
    """Return the two or three axes that ONNX Runtime resizes in one step, or none."""
    match len(axes):
        case 2 | 3:
            return axes
        case 4:
            return axes[2:] if axes[1].is_copied else axes[1:3]
        case 5:
            return axes[2:]
    return ()


def _linear_ends(c: NodeContext, axis: _ResizedAxis) -> tuple[Array, Array]:
    """Return the two inputs of each output and their shares, each [outputs, 2]."""
    at = _coordinates(c, axis).clip(0, axis.length - 1)
    first = at.astype(np.int64)
    last = np.minimum(first + 1, axis.length - 1)
    shares = np.abs(np.stack([at - last, at - first], axis=1)).astype(np.float32)
    is_single = (first == last)[:, None]
    return np.stack([first, last], axis=1), np.where(is_single, np.float32(0.5), shares)


def _outer(combine: np.ufunc, slow: Array, fast: Array) -> Array:
    """Combine all rows and columns of both tables; those of `fast` vary fastest."""
    table: Array = combine(slow[:, None, :, None], fast[None, :, None, :])
    return table.reshape(len(slow) * len(fast), -1)


def _upsample(c: NodeContext) -> OnnxValue:
    """Resize by scales of at least 1, of which output i is at i / scale."""
    if (c.array(1, "scales") < 1).any():
        raise NotSupportedError("an Upsample by a scale below 1")
    attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    inputs = (c.input(0), None, c.input(1))
    return _resized(replace(c, attrs={**c.attrs, **attrs}, inputs=inputs))


IMPORTERS: Mapping[str, Importer] = {"Resize": _resized, "Upsample": _upsample}
