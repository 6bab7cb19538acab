"""GridSample: pixels of an image at computed places, as ONNX Runtime interpolates."""

import math
from collections.abc import Mapping

from firmwright.base.errors import NotSupportedError
from firmwright.frontends.onnx.node_context import Importer, NodeContext, OnnxValue
from firmwright.frontends.onnx.operators.elementwise import require_float32
from firmwright.frontends.onnx.operators.interpolation import (
    SampledAxis,
    Sampling,
    interpolate,
)
from firmwright.ir.graph.attributes.movement import DynamicGatherAttrs

_MODES = {
    "nearest": "nearest",
    "linear": "linear",
    "bilinear": "linear",
    "cubic": "cubic",
    "bicubic": "cubic",
}
"""The modes of opset 20 by their names there and before."""
_PADDINGS = ("zeros", "border", "reflection")


def _sampling(c: NodeContext, spatial_axes: int) -> Sampling:
    mode, padding = c.attr("mode", "linear"), c.attr("padding_mode", "zeros")
    if mode not in _MODES or padding not in _PADDINGS:
        raise NotSupportedError(f"the mode {mode} with the padding {padding}")
    if spatial_axes == 3 and _MODES[mode] == "cubic":
        # ONNX Runtime does not support it either.
        raise NotSupportedError("cubic samples of 3 spatial axes")
    return Sampling(_MODES[mode], padding, bool(c.attr("align_corners", 0)))


def _grid_sample(c: NodeContext) -> OnnxValue:
    require_float32(c, 2)
    count = c.rank - 2
    if count not in (2, 3):
        raise NotSupportedError(f"samples of {count} spatial axes")
    if len(c.shape(1)) != c.rank or c.shape(1)[-1] != count:
        raise NotSupportedError(f"a grid {list(c.shape(1))}")
    emit, (samples, channels, *sizes) = c.emit, c.shape(0)
    results = c.shape(1)[1:-1]
    sampling = _sampling(c, count)
    axes: list[SampledAxis] = []
    for axis, length in enumerate(sizes):
        # The last coordinate of a place is that of the first axis.
        grid = emit.index_axis(c.input(1), c.rank - 1, count - 1 - axis)
        relative = emit.reshape(grid, (samples, math.prod(results), 1))
        formula = f"((a + 1.0) * {float(length)} - 1.0) / 2.0"
        if sampling.aligns_corners:
            formula = f"(a + 1.0) / 2.0 * {float(length - 1)}"
        place = emit.expression(formula, relative)
        axes.append(SampledAxis(length, sampling.taps(emit, place, length)))
    last = emit.transpose(c.input(0), (0, *range(2, c.rank), 1))
    pixels = emit.reshape(last, (samples, math.prod(sizes), channels))
    attrs = DynamicGatherAttrs(mode="slices", batch_dims=1)

    def fetch(at: OnnxValue) -> OnnxValue:
        return emit.call("dynamic_gather", pixels, at, attrs=attrs)

    image = interpolate(emit, fetch, axes)
    volume = emit.reshape(image, (samples, *results, channels))
    return emit.transpose(volume, (0, c.rank - 1, *range(1, c.rank - 1)))


IMPORTERS: Mapping[str, Importer] = {"GridSample": _grid_sample}
