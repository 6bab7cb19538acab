"""Where values computed from spectra of floats must be, by the proved bound.

A firmware transforms in float32, LiteRT's RFFT2D in double. The difference is small
beside the loudest bin of a frame, but the logarithm of a quiet bin enlarges it beyond
any tolerance of outputs. `rfft` is within the bound that docs/reference/numerics.md
derives ("Spectra of floats"); the operators that follow it in .tflite files are
evaluated in interval arithmetic. Their own roundings are those that the tolerance of
outputs allows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from firmwright.base.dtypes import FLOAT32, Array
from firmwright.flows.samples.reference_outputs import (
    float_tolerance,
    run_numpy_reference,
)
from firmwright.flows.samples.sample_batches import Tensors
from firmwright.ir.graph.attributes.base import attrs_to_mapping
from firmwright.ir.graph.evaluate import call_arrays, make_op_call
from firmwright.ir.graph.nodes import Call, Function
from firmwright.ir.module import IRModule
from firmwright.ops.registry import op_table
from firmwright.oracle.compare import (
    Comparison,
    Interval,
    Intervals,
    compare_outputs,
)

UNIT_ROUNDOFF = 2.0**-24
SMALLEST_TRANSFORM = 32
_MOVING = (
    "expand_dims",
    "gather",
    "mean",
    "reshape",
    "slice",
    "squeeze",
    "strided_slice",
    "sum",
    "transpose",
)
"""Operators whose results are elements of the first operand, or sums of them."""


def transform_error(frames: Array) -> Array:
    """Return the bound of the bins of frames [..., n] as [..., 1].

    It holds for n of 32 to 16,384, powers of two.
    """
    points = frames.shape[-1]
    size = np.linalg.norm(frames.astype(np.float64), axis=-1, keepdims=True)
    factor = 4 * UNIT_ROUNDOFF * np.log2(points) * np.sqrt(points)
    return np.asarray(factor * size)


def has_spectra(module: IRModule) -> bool:
    """Return whether the graph has fast transforms of floats with a proved bound."""
    return isinstance(module.entry, Function) and any(_spectra(module.entry.body))


def spectrum_intervals(
    module: IRModule, samples: Sequence[Tensors]
) -> tuple[Intervals, ...]:
    """Return for each sample the intervals of values that depend on spectra.

    Values after an operator that has no rule here have none.
    """
    found: list[Intervals] = []
    for values in run_numpy_reference(module, samples).layers:
        found.append(_SampleBounds(module, values).intervals())
    return tuple(found)


def compare_with_proof(
    module: IRModule,
    samples: Sequence[Tensors],
    expected: Sequence[Tensors],
    actual: Sequence[Tensors],
) -> Comparison:
    """Compare outputs; those beyond the tolerance may be in their intervals."""
    tolerance = float_tolerance(module)
    comparison = compare_outputs(expected, actual, tolerance)
    if not comparison.mismatches or not has_spectra(module):
        return comparison
    intervals = spectrum_intervals(module, samples)
    return compare_outputs(expected, actual, tolerance, intervals)


def _spectra(calls: Sequence[Call]) -> Iterator[Call]:
    for call in calls:
        if call.op in ("rfft", "stft"):
            y = call.outputs[0].type
            if y.dtype == FLOAT32 and y.shape[-1] - 2 >= SMALLEST_TRANSFORM:
                yield call


@dataclass(frozen=True, slots=True)
class _SampleBounds:
    """Intervals of the values of one run, `values` by name."""

    module: IRModule
    values: Tensors
    known: dict[str, Interval] = field(default_factory=dict)

    def intervals(self) -> Intervals:
        for call in self.module.entry_graph.body:
            arrays = call_arrays(self.module, call, self.values)
            result: Interval | None = None
            if any(
                value is not None and value.name in self.known for value in call.inputs
            ):
                with np.errstate(all="ignore"):
                    result = self._follow(call, arrays)
            elif any(_spectra([call])):
                shape = call.outputs[0].type.shape
                frames = _frames(call, arrays) if call.op == "stft" else arrays[0]
                result = _transform(frames, shape)
            if result is not None:
                self.known[call.outputs[0].name] = result
        return self.known

    def _follow(self, call: Call, arrays: Sequence[Array]) -> Interval | None:
        """Return the interval of a result, given those of the operands."""
        operands: list[Interval] = []
        for value, array in zip(call.inputs, arrays, strict=True):
            known = None if value is None else self.known.get(value.name)
            operands.append(known or Interval(array, array))
        if getattr(call.attrs, "activation", "none") != "none":
            return None
        if call.op in _MOVING:
            return self._moved(call, operands[0], arrays[1:])
        rule = _RULES.get(call.op)
        if rule is None:
            return None
        result = rule(*operands)
        shape = call.outputs[0].type.shape
        return Interval(result.low.reshape(shape), result.high.reshape(shape))

    def _moved(self, call: Call, x: Interval, others: Sequence[Array]) -> Interval:
        op_call = make_op_call(call, self.module)
        ends: list[Array] = []
        for end in (x.low, x.high):
            operands = [end.astype(np.float32), *others]
            ends.append(op_table()[call.op].reference(op_call, operands)[0])
        return Interval(ends[0], ends[1])


def _transform(frames: Array, shape: tuple[int, ...]) -> Interval:
    """Return the interval of bins [..., n + 2] of the shape, of frames [..., n]."""
    padded = np.zeros((*shape[:-1], shape[-1] - 2))
    padded[..., : frames.shape[-1]] = frames
    spectra = np.fft.rfft(padded)
    bins = np.stack([spectra.real, spectra.imag], axis=-1).reshape(shape)
    error = transform_error(padded)
    return Interval(bins - error, bins + error)


def _frames(call: Call, arrays: Sequence[Array]) -> Array:
    """Return the frames of `stft` times its window, [..., frames, length]."""
    signal, *windows = arrays
    length = call.outputs[0].type.shape[-1] - 2
    step = attrs_to_mapping(call.attrs)["step"]
    assert isinstance(step, int)
    view = np.lib.stride_tricks.sliding_window_view(signal, length, axis=-1)
    frames = view[..., ::step, :]
    return np.asarray(frames * windows[0] if windows else frames)


def _sum(a: Interval, b: Interval) -> Interval:
    return Interval(a.low + b.low, a.high + b.high)


def _difference(a: Interval, b: Interval) -> Interval:
    return Interval(a.low - b.high, a.high - b.low)


def _product(a: Interval, b: Interval) -> Interval:
    ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return Interval(np.minimum.reduce(ends), np.maximum.reduce(ends))


def _square(a: Interval) -> Interval:
    least = np.maximum(0, np.maximum(a.low, -a.high))
    return Interval(least**2, np.maximum(-a.low, a.high) ** 2)


def _square_root(a: Interval) -> Interval:
    return Interval(np.sqrt(np.maximum(a.low, 0)), np.sqrt(a.high))


def _logarithm(a: Interval) -> Interval:
    """A negative operand has no logarithm, and no lower limit."""
    return Interval(np.log(np.maximum(a.low, 0)), np.log(a.high))


def _maximum(a: Interval, b: Interval) -> Interval:
    return Interval(np.maximum(a.low, b.low), np.maximum(a.high, b.high))


def _layer(x: Interval, weights: Interval, *bias: Interval) -> Interval:
    """Products of rows with weights [outputs, inputs], which are taken as exact."""
    w = weights.low.astype(np.float64)
    rises, falls = np.maximum(w, 0).T, np.minimum(w, 0).T
    low, high = (end.reshape(-1, w.shape[1]) for end in (x.low, x.high))
    result = Interval(low @ rises + high @ falls, high @ rises + low @ falls)
    own = [item for item in bias if item.low.size]
    return _sum(result, own[0]) if own else result


_RULES: Mapping[str, Callable[..., Interval]] = {
    "add": _sum,
    "fully_connected": _layer,
    "log": _logarithm,
    "maximum": _maximum,
    "mul": _product,
    "sqrt": _square_root,
    "square": _square,
    "sub": _difference,
    "variable_fully_connected": _layer,
}
