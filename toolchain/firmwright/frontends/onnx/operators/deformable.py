"""DeformConv and RoiAlign: windows and regions at places computed at run time.

Semantics: ONNX, and ONNX Runtime for the largest sample of a region, which it takes of
the four weighted pixels, not of their sum.
"""

from collections.abc import Mapping

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.resource_limits import check_result_bytes
from firmwright.frontends.onnx.node_context import (
    ConstantValue,
    Importer,
    NodeContext,
    OnnxValue,
)
from firmwright.frontends.onnx.operators.elementwise import (
    float32_literal,
    require_float32,
)
from firmwright.frontends.onnx.operators.interpolation import (
    SampledAxis,
    Sampling,
    Tap,
    interpolate,
)
from firmwright.frontends.onnx.operators.matmul import (
    emit_fully_connected,
    emit_matmul,
)
from firmwright.ir.graph.attributes.movement import DynamicGatherAttrs
from firmwright.ir.graph.attributes.values import AxesAttrs

# ---- DeformConv ----------------------------------------------------------------------


def _window_starts(c: NodeContext, axis: int, outputs: int) -> Array:
    """Return the places [1, taps, outputs] of an axis without offsets."""
    rank = 2
    window = c.shape(1)[2:]
    pads = c.attr("pads") or (0,) * 2 * rank
    step = (c.attr("strides") or (1,) * rank)[axis]
    dilation = (c.attr("dilations") or (1,) * rank)[axis]
    taps = np.indices(window)[axis].reshape(-1, 1) * dilation
    starts = np.indices(c.shape(2)[2:])[axis].reshape(1, -1) * step
    return np.asarray(starts + taps - pads[axis], np.float32)[None]


def _deform_conv(c: NodeContext) -> OnnxValue:
    require_float32(c, 3)
    if c.rank != 4:
        raise NotSupportedError(f"windows of {c.rank - 2} axes")
    emit, (samples, channels, *sizes) = c.emit, c.shape(0)
    filters, _, *window = c.shape(1)
    results = c.shape(2)[2:]
    parts = int(c.attr("offset_group", 1))
    taps, count = int(np.prod(window)), int(np.prod(results))
    offsets = emit.reshape(c.input(2), (samples * parts, taps, 2, count))
    sampling = Sampling("linear", "zeros")
    axes: list[SampledAxis] = []
    for axis, length in enumerate(sizes):
        starts = emit.const(_window_starts(c, axis, count), f"starts{axis}")
        place = emit.expression("a + b", emit.index_axis(offsets, 2, axis), starts)
        column = emit.reshape(place, (samples * parts, taps * count, 1))
        axes.append(SampledAxis(length, sampling.taps(emit, column, length)))
    image = emit.reshape(
        c.input(0), (samples * parts, channels // parts, sizes[0] * sizes[1])
    )
    pixels = emit.transpose(image, (0, 2, 1))
    attrs = DynamicGatherAttrs(mode="slices", batch_dims=1)

    def fetch(at: OnnxValue) -> OnnxValue:
        return emit.call("dynamic_gather", pixels, at, attrs=attrs)

    columns = interpolate(emit, fetch, axes)
    if c.has(4):
        mask = emit.reshape(c.input(4), (samples * parts, taps * count, 1))
        columns = emit.expression("a * b", columns, mask)
    shape = (samples, parts, taps, count, channels // parts)
    moved = emit.transpose(emit.reshape(columns, shape), (0, 3, 1, 4, 2))
    rows = emit.reshape(moved, (samples, count, channels * taps))
    y = emit.transpose(_filtered(c, rows, filters), (0, 2, 1))
    return emit.reshape(y, (samples, filters, *results))


def _filtered(c: NodeContext, rows: OnnxValue, filters: int) -> OnnxValue:
    """Emit the products of `rows` [samples, places, channels and taps], plus bias."""
    emit, weights, groups = c.emit, c.input(1), int(c.attr("group", 1))
    share, size = filters // groups, rows.shape[2] // groups
    table = emit.reshape(weights, (filters, size))
    parts: list[OnnxValue] = []
    for group in range(groups):
        part = emit.slice_axis(rows, 2, group * size, size)
        own = emit.slice_axis(table, 0, group * share, share)
        if isinstance(own, ConstantValue):
            parts.append(emit_fully_connected(emit, part, own.array, own.name, None))
        else:
            parts.append(emit_matmul(emit, part, emit.transpose(own, (1, 0))))
    y = emit.concat(parts, 2)
    return emit.expression("a + b", y, c.input(3)) if c.has(3) else y


# ---- RoiAlign ------------------------------------------------------------------------


def _region_taps(c: NodeContext, axis: int, outputs: int, points: int) -> list[Tap]:
    """Return the two taps of an axis, of all regions and their `outputs` * `points`.

    A place up to one pixel beyond the image is that of the border; others count 0.
    """
    emit, length = c.emit, c.shape(0)[2 + axis]
    scale = float32_literal(float(c.attr("spatial_scale", 1.0)))
    mode = c.attr("coordinate_transformation_mode", "half_pixel")
    is_half_pixel = mode == "half_pixel" and c.opset >= 16
    shift = "0.5" if is_half_pixel else "0.0"
    # The coordinates of a region are (x, y) of its first and of its last corner.
    start, end = (
        emit.expression(
            f"a * {scale} - {shift}",
            emit.slice_axis(c.input(1), 1, first + 1 - axis, 1),
        )
        for first in (0, 2)
    )
    size = "b - a" if is_half_pixel else "max(b - a, 1.0)"
    each = emit.expression(f"({size}) / {float(outputs)}", start, end)
    steps = np.arange(outputs * points, dtype=np.int64)
    bins = emit.const((steps // points).astype(np.float32)[None], f"bins{axis}")
    inner = emit.const((steps % points + 0.5).astype(np.float32)[None], f"inner{axis}")
    formula = f"a + c * b + d * b / {float(points)}"
    place = emit.expression(formula, start, each, bins, inner)
    inside = emit.expression(
        f"where((a < -1.0) | (a > {float(length)}), 0.0, 1.0)", place
    )
    limited = emit.expression(f"min(max(a, 0.0), {float(length - 1)})", place)
    low = emit.expression("floor(a)", limited)
    high = emit.expression(f"min(a + 1.0, {float(length - 1)})", low)
    near = emit.expression("c * (1.0 - (a - b))", limited, low, inside)
    far = emit.expression("c * (a - b)", limited, low, inside)
    return [Tap(emit.cast(low, INT32), near), Tap(emit.cast(high, INT32), far)]


def _roi_align(c: NodeContext) -> OnnxValue:
    require_float32(c, 2)
    points = int(c.attr("sampling_ratio", 0))
    mode = c.attr("mode", "avg")
    if points < 1 or mode not in ("avg", "max"):
        raise NotSupportedError(f"sampling_ratio={points} with mode={mode}")
    emit, (samples, channels, height, width) = c.emit, c.shape(0)
    regions = c.shape(1)[0]
    rows, columns = int(c.attr("output_height", 1)), int(c.attr("output_width", 1))
    if min(rows, columns) < 1:
        raise NotSupportedError("a tensor without elements")
    elements = regions * rows * columns * points**2 * channels
    check_result_bytes(elements * FLOAT32.size_bytes)
    down = _region_taps(c, 0, rows, points)
    across = _region_taps(c, 1, columns, points)
    last = emit.transpose(c.input(0), (0, 2, 3, 1))
    pixels = emit.reshape(last, (samples * height * width, channels))
    batches = emit.reshape(emit.cast(c.input(2), INT32), (regions, 1, 1, 1))
    values: list[OnnxValue] = []
    for y in down:
        line = emit.reshape(y.index, (regions, rows * points, 1, 1))
        for x in across:
            column = emit.reshape(x.index, (regions, 1, columns * points, 1))
            formula = f"(a * {height} + b) * {width} + c"
            at = emit.expression(formula, batches, line, column)
            attrs = DynamicGatherAttrs(mode="slices")
            values.append(emit.call("dynamic_gather", pixels, at, attrs=attrs))
    weights = [
        emit.reshape(tap.weight, shape)
        for taps, shape in (
            (down, (regions, rows * points, 1, 1)),
            (across, (regions, 1, columns * points, 1)),
        )
        for tap in taps
        if tap.weight is not None
    ]
    products = "a * (e * g)", "b * (e * h)", "c * (f * g)", "d * (f * h)"
    joined = " + ".join(products) if mode == "avg" else f"max({', '.join(products)})"
    samples_of_bins = emit.reshape(
        emit.expression(joined, *values, *weights),
        (regions, rows, points, columns, points, channels),
    )
    if mode == "avg":
        mean = AxesAttrs(axes=(2, 4), keep_dims=False)
        image = emit.call("mean", samples_of_bins, attrs=mean, result=FLOAT32)
    else:
        image = emit.reduction("a", "max", (2, 4), samples_of_bins, keep=False)
    return emit.transpose(image, (0, 3, 1, 2))


IMPORTERS: Mapping[str, Importer] = {
    "DeformConv": _deform_conv,
    "RoiAlign": _roi_align,
}
