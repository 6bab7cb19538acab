"""Quantizes a float ONNX model to int8 and measures the error of each layer.

The results of the quantized model are compared with those of the float model on the same samples;
the error of a layer includes the errors of all layers before it.
"""

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
from firmwright.oracle import onnx_quantizer
from firmwright.oracle.reference_runner import ReferenceResult, run_reference

log = logging.getLogger(__name__)
DEFAULT_QUANTIZING = onnx_quantizer.QuantizeOptions()
SAMPLES_PER_CHUNK = 8
"""The number of samples compared together, which limits the values held in memory."""
DATA_MOVEMENT_OPS = frozenset(
    {"Constant", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
)
"""Operators that do not change values."""
ROUNDED = "_DequantizeLinear_Output"
"""The suffix of the dequantized result that the quantizer adds after an operator."""
UNROUNDED = "_QuantizeLinear_Input"
"""The suffix of an operator's result before quantization, if it is a model output."""


@dataclass(frozen=True, slots=True)
class LayerAccuracy:
    """The error of one operator's result; `sqnr_db` is infinite if nothing differs."""

    name: str
    op: str
    values: int
    sqnr_db: float
    mean_abs_error: float
    max_abs_error: float
    largest: float


@dataclass(frozen=True, slots=True)
class QuantizationResult:
    """The quantized model and the accuracy of its layers, in the model's order."""

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
    """Return the inputs of a model that is not lowered yet."""
    entry = model.module.entry
    if not isinstance(entry, Function):
        what = "the model is lowered already."
        raise UsageError(what, where=model.file, hint="quantize the model file instead.")
    return tuple(IoTensor(value.name, value.name, value.type) for value in entry.params)


def quantize_onnx_model(
    model: Model,
    samples: Sequence[Tensors],
    how: onnx_quantizer.QuantizeOptions = DEFAULT_QUANTIZING,
    compared: int = 32,
) -> QuantizationResult:
    """Quantize `model` and compare layers over the first `compared` samples.

    Raise UsageError, UnsupportedError, ToolMissingError or ToolFailedError.
    """
    if model.source is None or not is_onnx(model.source, model.file):
        hint = "give a float .onnx file; quantize TFLite models with the converter that makes them."
        raise UsageError("only float ONNX models can be quantized.", where=model.file, hint=hint)
    shapes = {tensor.name: tensor.type.shape for tensor in model_inputs(model)}
    source = preprocess_model(model.source, model.file, ModelOverrides(shapes))
    log.info("quantizing, calibrated with %d samples", len(samples))
    result = onnx_quantizer.quantize_model(source, samples, how, model.file)
    log.info("importing the quantized model")
    module = pipeline.load_module_bytes(result.model, model.file, name=model.name)
    return QuantizationResult(
        result.model,
        f"onnxruntime {result.version}",
        len(samples),
        min(compared, len(samples)),
        _layers(result, samples[:compared]),
        _in_floats(module, result.nodes),
    )


def _in_floats(module: IRModule, nodes: Sequence[onnx_quantizer.PreparedNode]) -> tuple[str, ...]:
    """Return the names of results that are still computed with floats, in the model's order."""
    entry = module.entry
    assert isinstance(entry, Function)  # nothing is lowered yet
    float_results = {
        call.span.tensor.removesuffix(UNROUNDED)
        for call in entry.body
        if call.op != "dequantize" and any(out.type.dtype.is_float for out in call.outputs)
    }
    return tuple(f"{node.op} {node.result}" for node in nodes if node.result in float_results)


# ---- errors ------------------------------------------------------------------------------------


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
        real, noise = expected.astype(np.float64), np.abs(actual.astype(np.float64) - expected)
        self.values += real.size
        self.signal += float(np.square(real).sum())
        self.noise += float(np.square(noise).sum())
        self.differences += float(noise.sum())
        self.worst = max(self.worst, float(noise.max(initial=0)))
        self.largest = max(self.largest, float(np.abs(real).max(initial=0)))


def _layers(
    result: onnx_quantizer.QuantizedModel, samples: Sequence[Tensors]
) -> tuple[LayerAccuracy, ...]:
    nodes = {node.result: node for node in result.nodes if node.op not in DATA_MOVEMENT_OPS}
    sums: dict[str, _ErrorSums] = {}
    for start in range(0, len(samples), SAMPLES_PER_CHUNK):
        log.info("comparing layers: sample %d of %d", start, len(samples))
        part = samples[start : start + SAMPLES_PER_CHUNK]
        expected = run_reference(result.prepared, part, "onnxruntime", layers=True)
        actual = run_reference(result.model, part, "onnxruntime", layers=True)
        for floats, values in zip(_by_name(expected), _by_name(actual), strict=True):
            for name in nodes:
                rounded = values.get(name + ROUNDED, values.get(name))
                if name not in floats or rounded is None:
                    continue  # fused with the following operator
                sums.setdefault(name, _ErrorSums()).add(floats[name], rounded)
    return tuple(_layer(nodes[name], sums[name]) for name in nodes if name in sums)


def _by_name(result: ReferenceResult) -> Iterator[Mapping[str, Array]]:
    """Yield each sample's float results by name, including the model's outputs."""
    for outputs, layers in zip(result.outputs, result.layers, strict=True):
        every = {**outputs, **{result.layer_names[index]: item for index, item in layers.items()}}
        yield {name: item for name, item in every.items() if item.dtype.kind == "f"}


def _layer(node: onnx_quantizer.PreparedNode, sums: _ErrorSums) -> LayerAccuracy:
    decibels = math.inf if sums.noise == 0 else -math.inf
    if sums.noise and sums.signal:
        decibels = 10 * math.log10(sums.signal / sums.noise)
    mean = sums.differences / max(sums.values, 1)
    errors = (decibels, mean, sums.worst, sums.largest)
    return LayerAccuracy(node.result, node.op, sums.values, *errors)
