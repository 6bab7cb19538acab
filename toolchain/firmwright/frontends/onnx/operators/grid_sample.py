"""GridSample: pixels of an image at computed places, as ONNX Runtime interpolates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from firmwright.base.dtypes import INT32
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.onnx.node_context import (
    CallEmitter,
    Importer,
    NodeContext,
    OnnxValue,
)
from firmwright.frontends.onnx.operators.elementwise import require_float32
from firmwright.ir.graph.attributes.movement import DynamicGatherAttrs

_CUBIC = (
    "near = a - b + 1.0; ((-0.75 * near + 3.75) * near - 6.0) * near + 3.0",
    "near = a - b; (1.25 * near - 2.25) * near * near + 1.0",
    "near = 1.0 - (a - b); (1.25 * near - 2.25) * near * near + 1.0",
    "near = 2.0 - (a - b); ((-0.75 * near + 3.75) * near - 6.0) * near + 3.0",
)
"""Weights of the pixels -1, 0, 1 and 2 after place a, whose pixel is b."""
_LINEAR = ("b + 1.0 - a", "a - b")
_MODES = {
    "nearest": "nearest",
    "linear": "linear",
    "bilinear": "linear",
    "cubic": "cubic",
    "bicubic": "cubic",
}
"""The modes of opset 20 by their names there and before."""
_PADDINGS = ("zeros", "border", "reflection")
_TO_CHANNELS_LAST, _TO_CHANNELS_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


@dataclass(frozen=True, slots=True)
class _Tap:
    """A pixel of one axis for each output: its int32 index, and its weight or None."""

    index: OnnxValue
    weight: OnnxValue | None


@dataclass(frozen=True, slots=True)
class _Sampling:
    """The interpolation, and the pixels beyond the image, of both axes."""

    mode: str
    padding: str
    aligns_corners: bool

    def taps(self, emit: CallEmitter, grid: OnnxValue, length: int) -> list[_Tap]:
        """Return the taps of an axis with `length` pixels, at places in [-1, 1]."""
        formula = f"((a + 1.0) * {float(length)} - 1.0) / 2.0"
        if self.aligns_corners:
            formula = f"(a + 1.0) / 2.0 * {float(length - 1)}"
        place = emit.expression(formula, grid)
        if self.mode == "nearest":
            return [self._tap(emit, emit.expression("rint(a)", place), length)]
        below = emit.expression("floor(a)", place)
        weights, first = (_LINEAR, 0) if self.mode == "linear" else (_CUBIC, -1)
        taps: list[_Tap] = []
        for offset, formula in enumerate(weights, first):
            pixel = emit.expression(f"a + {float(offset)}", below)
            weight = emit.expression(formula, place, below)
            taps.append(self._tap(emit, pixel, length, weight))
        return taps

    def _tap(
        self,
        emit: CallEmitter,
        pixel: OnnxValue,
        length: int,
        weight: OnnxValue | None = None,
    ) -> _Tap:
        last = float(length - 1)
        inside = f"(a >= 0.0) & (a <= {last})"
        if self.padding == "zeros" and weight is None:
            weight = emit.expression(f"where({inside}, 1.0, 0.0)", pixel)
        elif self.padding == "zeros" and weight is not None:
            weight = emit.expression(f"where({inside}, b, 0.0)", pixel, weight)
        elif self.padding == "reflection":
            pixel = emit.expression(self._reflection(length), pixel)
        limited = emit.expression(f"min(max(a, 0.0), {last})", pixel)
        return _Tap(emit.cast(limited, INT32), weight)

    def _reflection(self, length: int) -> str:
        """Return the formula of a pixel's mirror image inside of the borders.

        Borders are the outer pixels' centers if corners are aligned, else their edges.
        """
        start = 0.0 if self.aligns_corners else -0.5
        size = float(length - 1 if self.aligns_corners else length)
        if size == 0:
            return "a * 0.0"
        return (
            f"way = abs(a - {start}); turns = floor(way / {size}); "
            f"rest = way - turns * {size}; "
            f"is_even = turns - 2.0 * floor(turns * 0.5) == 0.0; "
            f"where(is_even, {start} + rest, {start} + {size} - rest)"
        )


def _weighted_sum(
    emit: CallEmitter, values: Sequence[OnnxValue], taps: Sequence[_Tap]
) -> OnnxValue:
    weights = [tap.weight for tap in taps if tap.weight is not None]
    if not weights:
        return values[0]
    names = "abcdefgh"
    count = len(values)
    pairs = zip(names[:count], names[count:], strict=False)
    formula = " + ".join(f"{value} * {weight}" for value, weight in pairs)
    return emit.expression(formula, *values, *weights)


def _grid_sample(c: NodeContext) -> OnnxValue:
    require_float32(c, 2)
    if c.rank != 4:
        raise NotSupportedError(f"samples of {c.rank - 2} spatial axes")
    if len(c.shape(1)) != 4 or c.shape(1)[3] != 2:
        raise NotSupportedError(f"a grid {list(c.shape(1))}")
    emit, (samples, channels, height, width) = c.emit, c.shape(0)
    _, rows, columns, _ = c.shape(1)
    mode, padding = c.attr("mode", "linear"), c.attr("padding_mode", "zeros")
    if mode not in _MODES or padding not in _PADDINGS:
        raise NotSupportedError(f"the mode {mode} with the padding {padding}")
    sampling = _Sampling(_MODES[mode], padding, bool(c.attr("align_corners", 0)))
    places = samples, rows * columns, 1
    across, down = (
        emit.reshape(emit.index_axis(c.input(1), 3, axis), places) for axis in (0, 1)
    )
    x_taps = sampling.taps(emit, across, width)
    y_taps = sampling.taps(emit, down, height)
    pixels = emit.reshape(
        emit.transpose(c.input(0), _TO_CHANNELS_LAST),
        (samples, height * width, channels),
    )
    lines: list[OnnxValue] = []
    attrs = DynamicGatherAttrs(mode="slices", batch_dims=1)
    for y in y_taps:
        values: list[OnnxValue] = []
        for x in x_taps:
            at = emit.expression(f"a * {width} + b", y.index, x.index)
            found = emit.call("dynamic_gather", pixels, at, attrs=attrs)
            values.append(found)
        lines.append(_weighted_sum(emit, values, x_taps))
    image = emit.reshape(
        _weighted_sum(emit, lines, y_taps), (samples, rows, columns, channels)
    )
    return emit.transpose(image, _TO_CHANNELS_FIRST)


IMPORTERS: Mapping[str, Importer] = {"GridSample": _grid_sample}
