"""`firmwright quantize`: quantize a float ONNX model to int8, report layer errors."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.cli.evaluate import format_layers
from firmwright.cli.model_argument import fixed_shapes
from firmwright.cli.text_table import Cell, format_pairs, format_table
from firmwright.cli.verb import Outcome
from firmwright.flows.model.model import load_model, model_inputs, write_file
from firmwright.flows.samples.labeled_data import convert_samples, read_dataset
from firmwright.flows.verify import onnx_quantization
from firmwright.flows.verify.evaluation import compare_models
from firmwright.flows.verify.onnx_quantization import FloatResult, QuantizationResult
from firmwright.oracle.onnx_quantizer import Activations, Method, QuantizeOptions
from firmwright.report.evaluation import RunScores, describe_clipping, format_scores

METHODS: dict[str, Method] = {
    "minmax": "MinMax",
    "entropy": "Entropy",
    "percentile": "Percentile",
}
ACTIVATIONS: dict[str, Activations] = {"int8": "QInt8", "uint8": "QUInt8"}


def run(args: argparse.Namespace) -> Outcome:
    model = load_model(args.model, overrides=fixed_shapes(args, "quantize"))
    onnx_quantization.float_onnx_source(model)
    if Path(args.out).suffix != ".onnx":
        raise UsageError(
            "the quantized model is an ONNX model.", where=args.out, hint="-o Q.onnx."
        )
    inputs = model_inputs(model)
    data = read_dataset(args.data, inputs, args.labels, args.classes)
    samples, _ = convert_samples(data.samples, inputs, inputs, data.where)
    method, activations = METHODS[args.method], ACTIVATIONS[args.activations]
    how = QuantizeOptions(method, activations, not args.per_tensor, tuple(args.exclude))
    result = onnx_quantization.quantize_onnx_model(model, samples, how, args.compare)
    write_file(args.out, result.model)
    scores: tuple[RunScores, ...] = ()
    if data.labels is not None:
        models = {"float model": model, "quantized model": load_model(args.out)}
        scores = compare_models(models, data, args.metric)
    size = len(model.source or b"")
    files = (args.model, args.out, size)
    data_of_run = quantization_to_json(result, scores, *files)
    return Outcome(data_of_run, format_summary(result, scores, *files))


def quantization_to_json(
    result: QuantizationResult,
    scores: Sequence[RunScores],
    model: str,
    out: str,
    size_bytes: int,
) -> dict[str, object]:
    """Return the object for `quantize --json`; the worst layers come first."""
    return {
        "model": model,
        "out": out,
        "tool": result.tool,
        "samples": result.calibrated_with,
        "compared": result.compared,
        "float_bytes": size_bytes,
        "quantized_bytes": len(result.model),
        "in_floats": result.in_floats,
        "runs": scores,
        "layers": result.layers,
    }


def format_summary(
    result: QuantizationResult,
    scores: Sequence[RunScores],
    model: str,
    out: str,
    size_bytes: int,
) -> str:
    written = f"{out}, {len(result.model):,} bytes, from {model}, {size_bytes:,} bytes"
    lines: list[tuple[str, Cell]] = [
        ("written", written),
        ("quantizer", result.tool),
        ("calibrated with", f"{result.calibrated_with:,} samples"),
        ("errors over", _samples_compared(result)),
        ("left in floats", "" if result.in_floats else "nothing"),
    ]
    for item in result.in_floats:
        lines.append(("", f"{item.op} {item.name}: {item.reason}"))
    for remedy, listed in _remedies(result.in_floats).items():
        lines.append(("remedy", f"{', '.join(listed)}: {remedy}"))
    parts = [format_pairs(lines)]
    if scores:
        parts.append(format_table(*format_scores(scores)))
    parts.append(format_layers(result.layers))
    parts.append(format_pairs(describe_clipping(result.layers)))
    return "\n\n".join(filter(None, parts))


def _samples_compared(result: QuantizationResult) -> str:
    samples = f"{result.compared:,}"
    if result.compared < result.calibrated_with:
        samples = f"{result.compared:,} of {result.calibrated_with:,}"
    return (
        f"{samples} calibration samples, worst layer first; evaluate --against has "
        "those of other data, whose values may clip"
    )


def _remedies(results: Sequence[FloatResult]) -> dict[str, list[str]]:
    """Return the operators for which each remedy is, in the model's order."""
    remedies: dict[str, list[str]] = {}
    for item in results:
        if item.remedy:
            listed = remedies.setdefault(item.remedy, [])
            if item.op not in listed:
                listed.append(item.op)
    return remedies
