"""window_statistics: numbers that describe each channel of a window, in float32.

x is [N, T, C], y [N, 1, F C]: each of the F statistics of all channels, in the order of
the attribute. Sums start from 0 with the oldest sample, every operation is rounded to
float32, and d is x - mean:

    mean                (sum of x) / T
    rms                 sqrt((sum of x x) / T)
    standard_deviation  sqrt((sum of d d) / T)
    minimum, maximum    of x; they pass over NaN
    range               maximum - minimum
    peak                greater of maximum and 0 - minimum
    mean_absolute       (sum of |x|) / T
    path                sum of |x[t] - x[t - 1]|
    zero_crossings      number of t for which only one of x[t], x[t - 1] is below 0
    mean_crossings      the same of d
    skewness            ((sum of (d d) d) / T) / (v sqrt(v)), v = (sum of d d) / T
    kurtosis            ((sum of (d d) (d d)) / T) / (v v)

The last two are 0 if their divisor is 0. Semantics: numpy in float64 and, for the last
two, scipy.stats, up to roundings; the order of sums is our own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from firmwright.base.dtypes import FLOAT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.sensors import WindowStatisticsAttrs
from firmwright.ir.tir.builder import (
    ArithExpr,
    Register,
    binary_expr,
    immediate,
    maximum,
    minimum,
    select,
)
from firmwright.ops.biquads import check_samples
from firmwright.ops.kernel import Kernel
from firmwright.ops.libm_intrinsics import libm_function
from firmwright.ops.opdef import OpDef

_PARTS: Mapping[str, tuple[str, ...]] = {
    "mean": ("mean",),
    "rms": ("squares",),
    "standard_deviation": ("variance",),
    "minimum": ("least",),
    "maximum": ("greatest",),
    "range": ("least", "greatest"),
    "peak": ("least", "greatest"),
    "mean_absolute": ("absolutes",),
    "path": ("path",),
    "zero_crossings": ("zero crossings",),
    "mean_crossings": ("mean", "mean crossings"),
    "skewness": ("variance", "cubes"),
    "kurtosis": ("variance", "fourth powers"),
}
"""The parts of which a statistic consists; a part may need `mean`."""
_OF_DISTANCES = ("variance", "cubes", "fourth powers", "mean crossings")
STATISTICS = tuple(_PARTS)


def _infer(call: OpCall) -> tuple[TensorType, ...]:
    items, _, channels = check_samples(call)
    names = call.attributes(WindowStatisticsAttrs).statistics
    unknown = [name for name in names if name not in _PARTS]
    if unknown or not names:
        raise NotSupportedError(f"the statistics {', '.join(unknown) or 'of nothing'}")
    return (TensorType((items, 1, len(names) * channels), FLOAT32),)


def _needed(call: OpCall) -> tuple[str, ...]:
    """Return the parts that the call computes."""
    names = call.attributes(WindowStatisticsAttrs).statistics
    parts = dict.fromkeys(part for name in names for part in _PARTS[name])
    if any(part in _OF_DISTANCES for part in parts):
        parts["mean"] = None
    return tuple(parts)


# ---- numpy ---------------------------------------------------------------------------


def _crossings(x: Array) -> Array:
    changes = (x[:, 1:] < 0) != (x[:, :-1] < 0)
    return np.asarray(changes.sum(axis=1).astype(np.float32))


def _sum(x: Array) -> Array:
    """Return the sum over axis 1 in the order of the samples."""
    total = np.zeros((len(x), x.shape[2]), np.float32)
    for t in range(x.shape[1]):
        total += x[:, t]
    return total


def _parts_of(x: Array, needed: Sequence[str]) -> dict[str, Array]:
    count = np.float32(x.shape[1])
    formulas: Mapping[str, Callable[[], Array]] = {
        "squares": lambda: _sum(x * x) / count,
        "absolutes": lambda: _sum(np.abs(x)) / count,
        "path": lambda: _sum(np.abs(x[:, 1:] - x[:, :-1])),
        "least": lambda: np.fmin.reduce(x, axis=1, initial=np.inf),
        "greatest": lambda: np.fmax.reduce(x, axis=1, initial=-np.inf),
        "zero crossings": lambda: _crossings(x),
        "mean": lambda: _sum(x) / count,
        "variance": lambda: _sum(d * d) / count,
        "cubes": lambda: _sum(d * d * d) / count,
        "fourth powers": lambda: _sum((d * d) * (d * d)) / count,
        "mean crossings": lambda: _crossings(d),
    }
    parts: dict[str, Array] = {}
    d = x
    if "mean" in needed:
        parts["mean"] = formulas["mean"]()
        d = x - parts["mean"][:, None]
    for name in needed:
        parts[name] = formulas[name]()
    return parts


def _quotient_or_zero(a: Array, b: Array) -> Array:
    return np.where(b == 0, np.float32(0), a / np.where(b == 0, np.float32(1), b))


def _statistic(name: str, part: Mapping[str, Array]) -> Array:
    match name:
        case "rms":
            return np.asarray(np.sqrt(part["squares"]))
        case "standard_deviation":
            return np.asarray(np.sqrt(part["variance"]))
        case "range":
            return part["greatest"] - part["least"]
        case "peak":
            return np.asarray(np.maximum(part["greatest"], 0 - part["least"]))
        case "skewness":
            v = part["variance"]
            return _quotient_or_zero(part["cubes"], v * np.sqrt(v))
        case "kurtosis":
            v = part["variance"]
            return _quotient_or_zero(part["fourth powers"], v * v)
    own = [item for item in _PARTS[name] if item != "mean"]
    return part[own[0] if own else "mean"]


def _reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    with np.errstate(all="ignore"):
        parts = _parts_of(arrays[0], _needed(call))
        names = call.attributes(WindowStatisticsAttrs).statistics
        values = [_statistic(name, parts) for name in names]
        return (np.concatenate(values, axis=1)[:, None].astype(np.float32),)


# ---- loops ---------------------------------------------------------------------------


def _absolute(x: ArithExpr) -> ArithExpr:
    return maximum(x, 0.0 - x)


def _is_below_zero(x: ArithExpr) -> ArithExpr:
    return x < 0.0


@dataclass(frozen=True, slots=True)
class _Channel:
    """The registers of the parts of a channel, those that `_parts_of` computes."""

    b: Kernel
    needed: Sequence[str]
    registers: dict[str, Register] = field(default_factory=dict)

    def open(self, of_distances: bool) -> None:
        """Declare the registers of the first or of the second pass over the samples."""
        for name in self.needed:
            if (name in _OF_DISTANCES) == of_distances:
                start = {"least": np.inf, "greatest": -np.inf}.get(name, 0.0)
                label = name.replace(" ", "_")
                self.registers[name] = self.b.register(label, FLOAT32, start)

    def add(self, x: ArithExpr, before: ArithExpr | None, of_distances: bool) -> None:
        """Add a sample, or its distance from the mean, and the one `before`."""
        for name, register in self.registers.items():
            if (name in _OF_DISTANCES) == of_distances:
                register.set(self._next(name, register.value, x, before))

    def _next(
        self, name: str, value: ArithExpr, x: ArithExpr, before: ArithExpr | None
    ) -> ArithExpr:
        match name:
            case "least":
                return minimum(x, value)
            case "greatest":
                return maximum(x, value)
            case "path":
                return value if before is None else value + _absolute(x - before)
            case "zero crossings" | "mean crossings":
                return value if before is None else value + _crossed(x, before)
        terms = {
            "mean": lambda: x,
            "absolutes": lambda: _absolute(x),
            "squares": lambda: x * x,
            "variance": lambda: x * x,
            "cubes": lambda: (x * x) * x,
            "fourth powers": lambda: (x * x) * (x * x),
        }
        return value + terms[name]()

    def close(self, count: int, of_distances: bool) -> None:
        """Divide the sums of means by the number of samples."""
        whole = ("least", "greatest", "path", "zero crossings", "mean crossings")
        for name, register in self.registers.items():
            if name not in whole and (name in _OF_DISTANCES) == of_distances:
                register.set(register.value / float(count))

    def statistic(self, name: str) -> ArithExpr:
        part = {name: register.value for name, register in self.registers.items()}
        root = libm_function("sqrt")
        match name:
            case "rms":
                return root(part["squares"])
            case "standard_deviation":
                return root(part["variance"])
            case "range":
                return part["greatest"] - part["least"]
            case "peak":
                return maximum(part["greatest"], 0.0 - part["least"])
            case "skewness":
                v = part["variance"]
                return self._quotient_or_zero(part["cubes"], v * root(v))
            case "kurtosis":
                v = part["variance"]
                return self._quotient_or_zero(part["fourth powers"], v * v)
        own = [item for item in _PARTS[name] if item != "mean"]
        return part[own[0] if own else "mean"]

    def _quotient_or_zero(self, a: ArithExpr, divisor: ArithExpr) -> ArithExpr:
        d = self.b.let("divisor", divisor)
        one = ArithExpr(immediate(1.0, FLOAT32))
        return select(d.equal(0.0), 0.0, a / select(d.equal(0.0), one, d))


def _crossed(x: ArithExpr, before: ArithExpr) -> ArithExpr:
    differs = binary_expr("ne", _is_below_zero(x), _is_below_zero(before))
    return select(differs, 1.0, ArithExpr(immediate(0.0, FLOAT32)))


def _pass(
    b: Kernel, channel: _Channel, place: tuple[ArithExpr, ArithExpr], is_second: bool
) -> None:
    """Emit a pass over the samples of a channel, the second of distances."""
    (n, c), count = place, b.input(0).shape[1]
    channel.open(is_second)
    names = [name for name in channel.registers if (name in _OF_DISTANCES) == is_second]
    if not names:
        return

    def sample(t: ArithExpr | int) -> ArithExpr:
        x = b.load(b.input(0), [n, t, c])
        return b.let("x", x - channel.registers["mean"].value if is_second else x)

    first = sample(0)
    channel.add(first, None, is_second)
    before = b.register("before", FLOAT32, first)
    with b.for_("t", count - 1, 1) as t:
        x = sample(t)
        channel.add(x, before.value, is_second)
        before.set(x)
    channel.close(count, is_second)


def _lower(call: OpCall, b: Kernel) -> None:
    items, _, channels = call.input(0).shape
    names = call.attributes(WindowStatisticsAttrs).statistics
    y = b.view("statistics", b.y, 0, (items, len(names), channels), access="w")
    with b.loops("n c", (items, channels)) as (n, c):
        channel = _Channel(b, _needed(call))
        _pass(b, channel, (n, c), is_second=False)
        _pass(b, channel, (n, c), is_second=True)
        for index, name in enumerate(names):
            b.store(y, [n, index, c], channel.statistic(name))


OPDEF = OpDef("window_statistics", _infer, _reference, _lower)
