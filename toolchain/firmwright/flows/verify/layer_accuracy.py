"""The errors of a quantized model's layers against floats, with earlier layers'."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.flows.samples.sample_batches import Tensors
from firmwright.ir.graph.nodes import Function, TensorType
from firmwright.report.evaluation import LayerAccuracy

log = logging.getLogger(__name__)
SAMPLES_PER_CHUNK = 8
"""The number of samples compared together, which limits the values held in memory."""
ROUNDED = "_DequantizeLinear_Output"
"""The suffix of the dequantized result that ONNX Runtime adds after an operator."""
QUANTIZED = "_QuantizeLinear_Output"
"""The suffix of the quantized result."""


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The real values from `low` to `high`, in steps, of a quantized result."""

    low: float
    high: float
    step: float

    def clips(self, reals: Array) -> Array:
        """Return which of the values are outside of the range by more than a step.

        Fixed ranges, such as that of a softmax, end a step before their largest value.
        """
        outside: Array = (reals < self.low - self.step) | (
            reals > self.high + self.step
        )
        return outside


def value_range(type_: TensorType) -> ValueRange | None:
    """Return the range of a type, None for floats and several scales."""
    quantization, dtype = type_.quantization, type_.dtype
    if quantization is None or quantization.per_channel:
        return None
    step, zero = quantization.scale, quantization.zero_point
    return ValueRange(step * (dtype.min - zero), step * (dtype.max - zero), step)


def find_ranges(graph: Function) -> dict[str, ValueRange]:
    """Return the ranges of the results of a quantized graph, by layer name."""
    ranges: dict[str, ValueRange] = {}
    for call in graph.body:
        for value in call.outputs:
            found = value_range(value.type)
            if found is not None:
                ranges[value.name.removesuffix(QUANTIZED)] = found
    return ranges


@dataclass(frozen=True, slots=True)
class LayerKind:
    """A layer's operator, and its place in the order of the float model."""

    op: str
    index: int


@dataclass(slots=True)
class _Noise:
    """Sums of squares of some values and of their errors."""

    signal: float = 0.0
    noise: float = 0.0

    def add(self, reals: Array, errors: Array) -> None:
        self.signal += float(np.square(reals).sum())
        self.noise += float(np.square(errors).sum())

    @property
    def decibels(self) -> float:
        """The ratio; noise without a signal has minus infinite decibels."""
        if not self.noise:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf


@dataclass(slots=True)
class _ErrorSums:
    """Sums and extremes of one result's float values and errors over all samples."""

    limits: ValueRange | None
    values: int = 0
    shape: tuple[int, ...] = ()
    total: _Noise = field(default_factory=_Noise)
    unclipped: _Noise = field(default_factory=_Noise)
    clipped: int = 0
    differences: float = 0.0
    worst: float = 0.0
    least: float = math.inf
    most: float = -math.inf

    def add(self, expected: Array, actual: Array) -> None:
        reals = expected.astype(np.float64)
        errors = np.abs(actual.astype(np.float64) - expected)
        self.values += reals.size
        self.shape = reals.shape
        self.total.add(reals, errors)
        self.differences += float(errors.sum())
        self.worst = max(self.worst, float(errors.max(initial=0)))
        self.least = min(self.least, float(reals.min(initial=math.inf)))
        self.most = max(self.most, float(reals.max(initial=-math.inf)))
        if self.limits is not None:
            clips = self.limits.clips(reals)
            self.clipped += int(np.count_nonzero(clips))
            self.unclipped.add(reals[~clips], errors[~clips])

    def layer(self, name: str, kind: LayerKind) -> LayerAccuracy:
        limits = self.limits
        is_empty = not self.values
        return LayerAccuracy(
            name,
            kind.op,
            self.values,
            sqnr_db=self.total.decibels,
            mean_abs_error=self.differences / max(self.values, 1),
            max_abs_error=self.worst,
            largest=0.0 if is_empty else max(abs(self.least), abs(self.most)),
            value_range=None if limits is None else (limits.low, limits.high),
            float_range=None if is_empty else (self.least, self.most),
            clipped=self.clipped,
            unclipped_sqnr_db=self.unclipped.decibels if self.clipped else None,
            index=kind.index,
            shape=self.shape,
        )


def measure_layers(
    count: int,
    run: Callable[[slice], Iterable[tuple[Tensors, Tensors]]],
    kinds: Mapping[str, LayerKind],
    ranges: Mapping[str, ValueRange],
) -> tuple[LayerAccuracy, ...]:
    """Return the errors of the layers in `kinds` over `count` samples, the worst first.

    `run` computes some of the samples and returns a pair for each: the float values and
    the real values by layer name. Layers that are missing in one of them are omitted.
    `ranges` are those of quantized layers.
    """
    sums: dict[str, _ErrorSums] = {}
    for start in range(0, count, SAMPLES_PER_CHUNK):
        log.info("comparing layers: sample %d of %d", start, count)
        for floats, values in run(slice(start, start + SAMPLES_PER_CHUNK)):
            for name in kinds:
                rounded = values.get(name + ROUNDED, values.get(name))
                if name not in floats or rounded is None:
                    continue
                if rounded.shape == floats[name].shape:
                    found = sums.setdefault(name, _ErrorSums(ranges.get(name)))
                    found.add(floats[name], rounded)
    layers: list[LayerAccuracy] = []
    for name, kind in kinds.items():
        if name in sums:
            layers.append(sums[name].layer(name, kind))
    return tuple(sorted(layers, key=lambda layer: layer.sqnr_db))
