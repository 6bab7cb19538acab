"""The errors of a quantized model's layers against floats, with earlier layers'."""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.flows.samples.sample_batches import Tensors
from firmwright.report.evaluation import LayerAccuracy

log = logging.getLogger(__name__)
SAMPLES_PER_CHUNK = 8
"""The number of samples compared together, which limits the values held in memory."""
ROUNDED = "_DequantizeLinear_Output"
"""The suffix of the dequantized result that ONNX Runtime adds after an operator."""


@dataclass(slots=True)
class _ErrorSums:
    """Sums and maxima of one result's float values and errors over all samples."""

    values: int = 0
    signal: float = 0.0
    noise: float = 0.0
    differences: float = 0.0
    worst: float = 0.0
    largest: float = 0.0

    def add(self, expected: Array, actual: Array) -> None:
        real = expected.astype(np.float64)
        noise = np.abs(actual.astype(np.float64) - expected)
        self.values += real.size
        self.signal += float(np.square(real).sum())
        self.noise += float(np.square(noise).sum())
        self.differences += float(noise.sum())
        self.worst = max(self.worst, float(noise.max(initial=0)))
        self.largest = max(self.largest, float(np.abs(real).max(initial=0)))


def measure_layers(
    count: int,
    run: Callable[[slice], Iterable[tuple[Tensors, Tensors]]],
    kinds: Mapping[str, str],
) -> tuple[LayerAccuracy, ...]:
    """Return the errors of the layers in `kinds` over `count` samples, the worst first.

    `run` computes some of the samples and returns a pair for each: the float values and
    the real values by layer name. Layers that are missing in one of them are omitted.
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
                    sums.setdefault(name, _ErrorSums()).add(floats[name], rounded)
    layers: list[LayerAccuracy] = []
    for name, kind in kinds.items():
        if name in sums:
            layers.append(_layer(name, kind, sums[name]))
    return tuple(sorted(layers, key=lambda layer: layer.sqnr_db))


def _layer(name: str, kind: str, sums: _ErrorSums) -> LayerAccuracy:
    """Return a layer's errors; noise without a signal has minus infinite decibels."""
    decibels = math.inf if sums.noise == 0 else -math.inf
    if sums.noise and sums.signal:
        decibels = 10 * math.log10(sums.signal / sums.noise)
    mean = sums.differences / max(sums.values, 1)
    return LayerAccuracy(
        name, kind, sums.values, decibels, mean, sums.worst, sums.largest
    )
