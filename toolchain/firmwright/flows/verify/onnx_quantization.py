"""Quantizes a float ONNX model to int8 and measures the error of each layer."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from firmwright import pipeline
from firmwright.base.dtypes import Array
from firmwright.base.errors import UsageError
from firmwright.flows.model.model import Model, model_inputs
from firmwright.flows.samples.labeled_data import evenly_spaced
from firmwright.flows.samples.sample_batches import Tensors
from firmwright.flows.verify.float_remedies import find_remedies
from firmwright.flows.verify.layer_accuracy import (
    LayerKind,
    ValueRange,
    find_ranges,
    measure_layers,
)
from firmwright.frontends.onnx import (
    ModelOverrides,
    convert_opset,
    is_onnx,
    preprocess_model,
)
from firmwright.ir.module import IRModule
from firmwright.oracle import onnx_quantizer
from firmwright.oracle.reference_runner import ReferenceResult, run_reference
from firmwright.report.evaluation import LayerAccuracy

log = logging.getLogger(__name__)
DEFAULT_QUANTIZING = onnx_quantizer.QuantizeOptions()
DATA_MOVEMENT_OPS = frozenset(
    {"Constant", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
)
"""Operators that do not change values."""
UNROUNDED = "_QuantizeLinear_Input"
"""The suffix of an operator's result before quantization, if it is a model output."""
NO_INTEGER_FORM = "there is no integer form with its operands"


@dataclass(frozen=True, slots=True)
class FloatResult:
    """A result that is still computed with floats, why, and the remedy if known."""

    name: str
    op: str
    reason: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class QuantizationResult:
    """The quantized model and the accuracy of its layers, worst first."""

    model: bytes = field(repr=False)
    tool: str
    calibrated_with: int
    compared: int
    layers: tuple[LayerAccuracy, ...]
    in_floats: tuple[FloatResult, ...]


def float_onnx_source(model: Model) -> bytes:
    """Return the model file; raise UsageError if it is not an ONNX model."""
    if model.source is None or not is_onnx(model.source, model.file):
        hint = (
            "give a float .onnx file; quantize TFLite models with the converter that "
            "makes them."
        )
        raise UsageError(
            "only float ONNX models can be quantized.", where=model.file, hint=hint
        )
    return model.source


def quantize_onnx_model(
    model: Model,
    samples: Sequence[Tensors],
    how: onnx_quantizer.QuantizeOptions = DEFAULT_QUANTIZING,
    compared: int = 32,
) -> QuantizationResult:
    """Quantize `model`; compare layers over up to `compared` evenly spaced samples."""
    source = float_onnx_source(model)
    shapes = {tensor.name: tensor.type.shape for tensor in model_inputs(model)}
    source = preprocess_model(source, model.file, ModelOverrides(shapes))
    source = convert_opset(source, model.file)
    chosen = [samples[index] for index in evenly_spaced(len(samples), compared)]
    log.info("quantizing, calibrated with %d samples", len(samples))
    result = onnx_quantizer.quantize_model(source, samples, how, model.file)
    log.info("importing the quantized model")
    module = pipeline.load_module_bytes(result.model, model.file, name=model.name)
    return QuantizationResult(
        model=result.model,
        tool=f"onnxruntime {result.version}",
        calibrated_with=len(samples),
        compared=len(chosen),
        layers=_layers(result, chosen, find_ranges(module.entry_graph)),
        in_floats=_in_floats(module, result.nodes),
    )


def _in_floats(
    module: IRModule, nodes: Sequence[onnx_quantizer.PreparedNode]
) -> tuple[FloatResult, ...]:
    """Return the results that are still computed with floats, in the model's order."""
    # An integer operator of several calls, such as a softmax, may use floats inside.
    last_calls = {call.span.tensor: call for call in module.entry_graph.body}
    names: set[str] = set()
    for name, call in last_calls.items():
        has_floats = any(output.type.dtype.is_float for output in call.outputs)
        if has_floats and call.op != "dequantize":
            names.add(name.removesuffix(UNROUNDED))
    remedies = find_remedies(nodes, {tensor.name for tensor in module.io.inputs})
    results: list[FloatResult] = []
    for node in nodes:
        if node.result in names:
            operands = [name for name in node.inputs if name in names]
            reason = NO_INTEGER_FORM
            if operands and operands[0]:
                reason = f"its operand {operands[0]} is in floats"
            reason = node.reason or reason
            remedy = remedies.get(node.result, "")
            results.append(FloatResult(node.result, node.op, reason, remedy))
    return tuple(results)


def _layers(
    result: onnx_quantizer.QuantizedModel,
    samples: Sequence[Tensors],
    ranges: Mapping[str, ValueRange],
) -> tuple[LayerAccuracy, ...]:
    """Compare the layers of the quantized model with those of the float model."""

    def run(part: slice) -> Iterable[tuple[Tensors, Tensors]]:
        chosen = samples[part]
        floats = run_reference(result.prepared, chosen, "onnxruntime", layers=True)
        quantized = run_reference(result.model, chosen, "onnxruntime", layers=True)
        return zip(_by_name(floats), _by_name(quantized), strict=True)

    kinds: dict[str, LayerKind] = {}
    for index, node in enumerate(result.nodes):
        if node.op not in DATA_MOVEMENT_OPS:
            kinds[node.result] = LayerKind(node.op, index)
    return measure_layers(len(samples), run, kinds, ranges)


def _by_name(result: ReferenceResult) -> Iterator[Mapping[str, Array]]:
    """Yield each sample's float results by name, including the model's outputs."""
    for outputs, layers in zip(result.outputs, result.layers, strict=True):
        values = dict(outputs)
        for index, item in layers.items():
            values[result.layer_names[index]] = item
        floats: dict[str, Array] = {}
        for name, item in values.items():
            if item.dtype.kind == "f":
                floats[name] = item
        yield floats
