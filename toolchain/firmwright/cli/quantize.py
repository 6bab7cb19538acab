"""`firmwright quantize`: quantize a float ONNX model to int8 and report layer errors."""

import argparse
from typing import Any

from firmwright.cli import arguments
from firmwright.cli.option_values import positive_int
from firmwright.cli.text_table import Cell, format_pairs, format_table
from firmwright.cli.verb import REPEATABLE, Outcome, add_options
from firmwright.flows.model import load_model, write_file
from firmwright.flows.onnx_quantization import QuantizationResult, model_inputs, quantize_onnx_model
from firmwright.flows.sample_batches import read_calibration_samples
from firmwright.oracle.onnx_quantizer import Activations, Method, QuantizeOptions

NAME = "quantize"
HELP = "quantize a float ONNX model to int8 and report the error of each layer"
DEFAULT_COMPARED = 32
METHODS: dict[str, Method] = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}
ACTIVATIONS: dict[str, Activations] = {"int8": "QInt8", "uint8": "QUInt8"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="float .onnx file")
    arguments.add_onnx_input_options(parser)
    add_options(
        parser,
        f"""
        --data DIR  representative samples, one per file: .npy with the input, or .npz with all
            inputs
        -o --out OUT  the .onnx file to write
        --method  range calibration: minmax uses the full range, the others clip outliers (default:
            minmax)
        --activations  element type of activations; weights are int8 (default: int8)
        --per-tensor  use one scale for all weights of a layer instead of one for each channel
        --exclude NAME  keep the operator with this name or result in float
        --compare N  maximum number of samples for the layer errors (default: {DEFAULT_COMPARED})
        """,
        data={"required": True},
        out={"required": True},
        method={"choices": tuple(METHODS), "default": "minmax"},
        activations={"choices": tuple(ACTIVATIONS), "default": "int8"},
        exclude=REPEATABLE,
        compare={"type": positive_int, "default": DEFAULT_COMPARED},
    )


def run(args: argparse.Namespace) -> Outcome:
    model = load_model(args.model, overrides=arguments.model_overrides(args))
    samples = read_calibration_samples(args.data, model_inputs(model))
    method, activations = METHODS[args.method], ACTIVATIONS[args.activations]
    how = QuantizeOptions(method, activations, not args.per_tensor, tuple(args.exclude))
    result = quantize_onnx_model(model, samples, how, args.compare)
    write_file(args.out, result.model)
    size = len(model.source or b"")
    return Outcome(
        quantization_to_json(result, args.model, args.out, size),
        format_summary(result, args.model, args.out, size),
    )


def quantization_to_json(
    result: QuantizationResult, model: str, out: str, size_bytes: int
) -> dict[str, Any]:
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
        "layers": result.worst_first,
    }


def format_summary(result: QuantizationResult, model: str, out: str, size_bytes: int) -> str:
    head = ["layer", "operator", "SQNR dB", "mean error", "max error", "largest value"]
    lines: list[tuple[str, Cell]] = [
        ("written", f"{out}, {len(result.model):,} bytes, from {model}, {size_bytes:,} bytes"),
        ("quantizer", result.tool),
        ("calibrated with", f"{result.calibrated_with:,} samples"),
        ("errors over", f"{result.compared:,} samples, worst layer first"),
        ("left in floats", ", ".join(result.in_floats) or "nothing"),
    ]
    rows: list[list[Cell]] = []
    for layer in result.worst_first:
        errors = (layer.mean_abs_error, layer.max_abs_error, layer.largest)
        rows.append([layer.name, layer.op, layer.sqnr_db, *(f"{value:.3g}" for value in errors)])
    return f"{format_pairs(lines)}\n\n{format_table(head, rows)}"
