"""Random float networks, quantized by ONNX Runtime to QLinearConv and the like."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_static,
)

from tests.onnx.onnx_models import Net
from tests.onnx.random_qdq_graphs import INPUTS, Array, FloatNetwork, random_samples

TYPES = (
    (QuantType.QInt8, QuantType.QInt8),
    (QuantType.QUInt8, QuantType.QInt8),
    (QuantType.QUInt8, QuantType.QUInt8),
)
"""Activations and weights."""


class _Samples(CalibrationDataReader):  # type: ignore[misc]  # has no types
    def __init__(self, samples: list[dict[str, Array]], names: set[str]) -> None:
        self._rest = [{name: sample[name] for name in names} for sample in samples]

    def get_next(self) -> dict[str, Array] | None:
        return self._rest.pop() if self._rest else None


def random_qoperator_model(seed: int, layers: int = 8) -> bytes:
    """Return a quantized model with float `INPUTS` and the results of all layers."""
    rng = np.random.Generator(np.random.PCG64(seed))
    network = FloatNetwork(rng, Net(seed))
    for name, shape in INPUTS.items():
        network.shapes[network.net.input(name, shape)] = shape
    network.grow(layers)
    activations, weights = TYPES[seed % len(TYPES)]
    options: dict[str, Any] = {
        "per_channel": bool(rng.integers(2)),
        "reduce_range": False,
    }
    with tempfile.TemporaryDirectory() as name:
        source, quantized = Path(name) / "float.onnx", Path(name) / "quantized.onnx"
        source.write_bytes(network.net.model(*network.results))
        quantize_static(
            source,
            quantized,
            _Samples(
                random_samples(seed, 4), {item.name for item in network.net.inputs}
            ),
            quant_format=QuantFormat.QOperator,
            activation_type=activations,
            weight_type=weights,
            **options,
        )
        return quantized.read_bytes()
