"""Interpolation of images at places that are computed at run time, axis by axis."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from firmwright.base.dtypes import INT32
from firmwright.frontends.onnx.node_context import CallEmitter, OnnxValue

_CUBIC = (
    "near = a - b + 1.0; ((-0.75 * near + 3.75) * near - 6.0) * near + 3.0",
    "near = a - b; (1.25 * near - 2.25) * near * near + 1.0",
    "near = 1.0 - (a - b); (1.25 * near - 2.25) * near * near + 1.0",
    "near = 2.0 - (a - b); ((-0.75 * near + 3.75) * near - 6.0) * near + 3.0",
)
"""Weights of the pixels -1, 0, 1 and 2 after place a, whose pixel is b."""
_LINEAR = ("b + 1.0 - a", "a - b")


@dataclass(frozen=True, slots=True)
class Tap:
    """A pixel of one axis for each output: its int32 index, and its weight or None."""

    index: OnnxValue
    weight: OnnxValue | None


@dataclass(frozen=True, slots=True)
class Sampling:
    """The interpolation, and the pixels beyond the image, of all axes."""

    mode: str
    padding: str
    aligns_corners: bool = False
    """Whether reflection is at the centers of the outer pixels, not at their edges."""

    def taps(self, emit: CallEmitter, place: OnnxValue, length: int) -> list[Tap]:
        """Return the taps of an axis at places counted in its `length` pixels."""
        if self.mode == "nearest":
            return [self._tap(emit, emit.expression("rint(a)", place), length)]
        below = emit.expression("floor(a)", place)
        weights, first = (_LINEAR, 0) if self.mode == "linear" else (_CUBIC, -1)
        taps: list[Tap] = []
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
    ) -> Tap:
        last = float(length - 1)
        inside = f"(a >= 0.0) & (a <= {last})"
        if self.padding == "zeros" and weight is None:
            weight = emit.expression(f"where({inside}, 1.0, 0.0)", pixel)
        elif self.padding == "zeros" and weight is not None:
            weight = emit.expression(f"where({inside}, b, 0.0)", pixel, weight)
        elif self.padding == "reflection":
            pixel = emit.expression(self._reflection(length), pixel)
        limited = emit.expression(f"min(max(a, 0.0), {last})", pixel)
        return Tap(emit.cast(limited, INT32), weight)

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


@dataclass(frozen=True, slots=True)
class SampledAxis:
    """An axis with `length` pixels and its taps."""

    length: int
    taps: Sequence[Tap]


def interpolate(
    emit: CallEmitter,
    fetch: Callable[[OnnxValue], OnnxValue],
    axes: Sequence[SampledAxis],
    before: OnnxValue | None = None,
) -> OnnxValue:
    """Emit the sums of pixels times their weights along `axes`, the outermost first.

    `fetch` emits the pixels at indices into the joined axes; `before` is the index in
    the axes outside of these.
    """
    outer, *inner = axes
    values: list[OnnxValue] = []
    for tap in outer.taps:
        at = tap.index
        if before is not None:
            at = emit.expression(f"a * {outer.length} + b", before, at)
        values.append(interpolate(emit, fetch, inner, at) if inner else fetch(at))
    return _weighted_sum(emit, values, outer.taps)


def _weighted_sum(
    emit: CallEmitter, values: Sequence[OnnxValue], taps: Sequence[Tap]
) -> OnnxValue:
    weights = [tap.weight for tap in taps if tap.weight is not None]
    if not weights:
        return values[0]
    names = "abcdefgh"
    count = len(values)
    pairs = zip(names[:count], names[count:], strict=False)
    formula = " + ".join(f"{value} * {weight}" for value, weight in pairs)
    return emit.expression(formula, *values, *weights)
