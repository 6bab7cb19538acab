"""How the quantized results of a model use their ranges, over a user's samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.flows.samples.labeled_data import stored_integers
from firmwright.flows.samples.reference_outputs import compute_reference
from firmwright.flows.samples.sample_batches import Tensors
from firmwright.flows.verify.layer_accuracy import ValueRange, value_range
from firmwright.ir.graph.nodes import Function, TensorType
from firmwright.pipeline import Compilation
from firmwright.report.evaluation import format_share

_ACTIVATION_ENDS = (-1.0, 0.0, 1.0, 6.0)
"""Real values at which activations end: tanh, ReLU, sigmoid and softmax, ReLU6."""
_MANY_AT_END = 0.01
"""Calibration by the smallest and largest value leaves one value at each end."""
_SAMPLES_PER_PART = 32


@dataclass(frozen=True, slots=True)
class RangeUse:
    """The values of one result: `lowest` to `highest` of the real `value_range`.

    `at_ends` counts the values at an end of the range that is no end of an activation,
    which are probably clipped.
    """

    name: str
    op: str
    values: int
    value_range: tuple[float, float]
    lowest: float
    highest: float
    at_ends: int

    @property
    def used_percent(self) -> float:
        low, high = self.value_range
        return 100 * (self.highest - self.lowest) / (high - low)


def measure_range_use(
    compiled: Compilation, samples: Sequence[Tensors]
) -> tuple[RangeUse, ...]:
    """Return the use of every quantized result that the reference names, in order.

    A graph that is saved after lowering has none. A model with state runs all samples
    in one part.
    """
    entry = compiled.imported.entry
    if not isinstance(entry, Function):
        return ()
    size = len(samples) if entry.state else _SAMPLES_PER_PART
    types: dict[str, TensorType] = {}
    for call in entry.body:
        types |= {value.name: value.type for value in call.outputs}
    found: dict[str, _Extent] = {}
    for start in range(0, len(samples), size):
        part = samples[start : start + size]
        reference = compute_reference(compiled, part, layers=True)
        layers = reference.layers or ({},) * len(part)
        for outputs, values in zip(reference.outputs, layers, strict=True):
            for name, array in {**values, **outputs}.items():
                if name in types and array.dtype.kind in "iu" and array.size:
                    whole = stored_integers(array, types[name])
                    found.setdefault(name, _Extent()).add(whole)
    uses: list[RangeUse] = []
    for call in entry.body:
        for value in call.outputs:
            limits = value_range(value.type)
            extent = found.get(value.name)
            if limits is not None and extent is not None:
                uses.append(_use(value.name, call.op, value.type, limits, extent))
    return tuple(uses)


@dataclass(slots=True)
class _Extent:
    """The number of integers, those at their extremes, and the extremes."""

    values: int = 0
    low: int = 0
    high: int = 0
    at_low: int = 0
    at_high: int = 0

    def add(self, array: Array) -> None:
        low, high = int(array.min()), int(array.max())
        if not self.values or low < self.low:
            self.low, self.at_low = low, 0
        if not self.values or high > self.high:
            self.high, self.at_high = high, 0
        self.values += array.size
        self.at_low += int(np.count_nonzero(array == self.low))
        self.at_high += int(np.count_nonzero(array == self.high))


def _use(
    name: str, op: str, type_: TensorType, limits: ValueRange, extent: _Extent
) -> RangeUse:
    quantization, dtype = type_.quantization, type_.dtype
    assert quantization is not None  # as it has limits
    lowest = (extent.low - quantization.zero_point) * quantization.scale
    highest = (extent.high - quantization.zero_point) * quantization.scale
    at_ends = 0
    if extent.low == dtype.min and not _is_activation_end(limits.low, limits):
        at_ends += extent.at_low
    if extent.high == dtype.max and not _is_activation_end(limits.high, limits):
        at_ends += extent.at_high
    ends = (limits.low, limits.high)
    return RangeUse(name, op, extent.values, ends, lowest, highest, at_ends)


def _is_activation_end(value: float, limits: ValueRange) -> bool:
    return any(
        math.isclose(value, end, abs_tol=1.01 * limits.step) for end in _ACTIVATION_ENDS
    )


def describe_range_use(uses: Iterable[RangeUse]) -> tuple[str, ...]:
    """Return warnings about results with many values at the ends of their ranges."""
    warnings: list[str] = []
    for use in uses:
        if use.at_ends > _MANY_AT_END * use.values:
            low, high = use.value_range
            warnings.append(
                f"{use.name}: {format_share(use.at_ends, use.values)} of the values "
                f"are at an end of the range, {low:.3g} to {high:.3g}: they exceed the "
                "values of the calibration, and clip."
            )
    return tuple(warnings)
