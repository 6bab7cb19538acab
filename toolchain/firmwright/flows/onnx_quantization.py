"""A float ONNX model made one of int8, and what that costs each layer.

In: a loaded ONNX model and samples. Out: a `QuantizationResult`: the new model's bytes, which
import like
any other, and a `LayerAccuracy` for each operator that computes: its result in the quantised model
against the float one, over the samples, both fed the same. The error of a layer holds those of
all layers before it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from firmwright import pipeline
from firmwright.base.errors import UsageError
from firmwright.flows.model import Model
from firmwright.flows.sample_batches import Array, Tensors
from firmwright.frontends.onnx import ModelOverrides, is_onnx, preprocess_model
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IoTensor, IRModule
from firmwright.oracle.onnx_quantizer import (
    PreparedNode,
    QuantizedModel,
    QuantizeOptions,
    quantize_model,
)
from firmwright.oracle.reference_runner import ReferenceResult, run_reference

log = logging.getLogger(__name__)
DEFAULT_QUANTIZING = QuantizeOptions()
SAMPLES_PER_CHUNK = 8
"""Samples that are compared at once: all their values are in memory."""
DATA_MOVEMENT_OPS = frozenset(
    {"Constant", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
)
"""Operators that only pass on what they are given."""
ROUNDED = "_DequantizeLinear_Output"
"""What the tool appends to a result's name, for the reals behind its rounding."""
UNROUNDED = "_QuantizeLinear_Input"
"""The same for those before it, where the result is an output of the model."""


@dataclass(frozen=True, slots=True)
class LayerAccuracy:
    """One operator's result: `sqnr_db` is infinite where nothing differs."""

    name: str
    op: str
    values: int
    sqnr_db: float
    mean_abs_error: float
    max_abs_error: float
    largest: float


@dataclass(frozen=True, slots=True)
class QuantizationResult:
    """See the module docstring; `layers` in the model's order."""

    model: bytes = field(repr=False)
    tool: str
    calibrated_with: int
    compared: int
    layers: tuple[LayerAccuracy, ...]
    in_floats: tuple[str, ...]

    @property
    def worst_first(self) -> tuple[LayerAccuracy, ...]:
        return tuple(sorted(self.layers, key=lambda layer: layer.sqnr_db))


def model_inputs(model: Model) -> tuple[IoTensor, ...]:
    """What a sample of a model that is not lowered yet consists of."""
    entry = model.module.entry
    if not isinstance(entry, Function):
        raise UsageError(
            "the model is lowered already.", where=model.file, hint="the model file itself."
        )
    return tuple(IoTensor(value.name, value.name, value.type) for value in entry.params)


def quantize_onnx_model(
    model: Model,
    samples: Sequence[Tensors],
    how: QuantizeOptions = DEFAULT_QUANTIZING,
    compared: int = 32,
) -> QuantizationResult:
    """Quantise `model`; the table is over the first `compared` samples.

    Raises UsageError, UnsupportedError, ToolMissingError, ToolFailedError.
    """
    if model.source is None or not is_onnx(model.source, model.file):
        raise UsageError(
            "only float ONNX models can be quantised.",
            where=model.file,
            hint="the .onnx file; a TFLite model is quantised by the converter that makes it.",
        )
    shapes = {tensor.name: tensor.type.shape for tensor in model_inputs(model)}
    source = preprocess_model(model.source, model.file, ModelOverrides(shapes))
    log.info("quantising, calibrated with %d samples", len(samples))
    found = quantize_model(source, samples, how, model.file)
    log.info("importing the quantised model")
    module = pipeline.load_module_bytes(found.model, model.file, name=model.name)
    return QuantizationResult(
        found.model,
        f"onnxruntime {found.version}",
        len(samples),
        min(compared, len(samples)),
        _layers(found, samples[:compared]),
        _in_floats(module, found.nodes),
    )


def _in_floats(module: IRModule, nodes: Sequence[PreparedNode]) -> tuple[str, ...]:
    """The results of operators that still compute with floats, in the model's order."""
    entry = module.entry
    assert isinstance(entry, Function)  # nothing is lowered yet
    found = {
        call.span.tensor.removesuffix(UNROUNDED)
        for call in entry.body
        if call.op != "dequantize" and any(out.type.dtype.is_float for out in call.outputs)
    }
    return tuple(f"{node.op} {node.result}" for node in nodes if node.result in found)


# ---- errors ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _ErrorSums:
    """What is added up over samples: of floats, and of their differences."""

    values: int = 0
    signal: float = 0.0
    noise: float = 0.0
    differences: float = 0.0
    worst: float = 0.0
    largest: float = 0.0

    def add(self, wanted: Array, got: Array) -> None:
        real, noise = wanted.astype(np.float64), np.abs(got.astype(np.float64) - wanted)
        self.values += real.size
        self.signal += float(np.square(real).sum())
        self.noise += float(np.square(noise).sum())
        self.differences += float(noise.sum())
        self.worst = max(self.worst, float(noise.max(initial=0)))
        self.largest = max(self.largest, float(np.abs(real).max(initial=0)))


def _layers(found: QuantizedModel, samples: Sequence[Tensors]) -> tuple[LayerAccuracy, ...]:
    nodes = {node.result: node for node in found.nodes if node.op not in DATA_MOVEMENT_OPS}
    sums: dict[str, _ErrorSums] = {}
    for start in range(0, len(samples), SAMPLES_PER_CHUNK):
        log.info("comparing layers: sample %d of %d", start, len(samples))
        part = samples[start : start + SAMPLES_PER_CHUNK]
        wanted = run_reference(found.prepared, part, "onnxruntime", layers=True)
        got = run_reference(found.model, part, "onnxruntime", layers=True)
        for floats, values in zip(_by_name(wanted), _by_name(got), strict=True):
            for name in nodes:
                if name not in floats or name not in values:
                    continue  # one with the operator behind it
                rounded = values.get(name + ROUNDED, values[name])
                sums.setdefault(name, _ErrorSums()).add(floats[name], rounded)
    return tuple(_layer(nodes[name], sums[name]) for name in nodes if name in sums)


def _by_name(result: ReferenceResult) -> Iterator[Mapping[str, Array]]:
    """Each sample's float results of all operators, the model's outputs among them."""
    for outputs, layers in zip(result.outputs, result.layers, strict=True):
        every = {**outputs, **{result.layer_names[index]: item for index, item in layers.items()}}
        yield {name: item for name, item in every.items() if item.dtype.kind == "f"}


def _layer(node: PreparedNode, sums: _ErrorSums) -> LayerAccuracy:
    return LayerAccuracy(
        node.result,
        node.op,
        sums.values,
        _decibels(sums.signal, sums.noise),
        sums.differences / max(sums.values, 1),
        sums.worst,
        sums.largest,
    )


def _decibels(signal: float, noise: float) -> float:
    """How far the signal stands above the noise; no signal is no better than its noise."""
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf
