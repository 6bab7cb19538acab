"""`firmwright quantize`: a float ONNX model becomes one of int8, and says what that costs."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from firmwright.cli.shared_options import (
    Outcome,
    add_onnx_input_options,
    model_overrides,
    positive_int,
)
from firmwright.cli.text_table import Cell, format_pairs, format_table
from firmwright.flows.calibration_data import read_calibration_samples
from firmwright.flows.model import load_model, write_file
from firmwright.flows.onnx_quantization import (
    LayerAccuracy,
    QuantizationResult,
    model_inputs,
    quantize_onnx_model,
)
from firmwright.oracle.onnx_quantizer import Activations, Method, QuantizeOptions

NAME = "quantize"
HELP = "turn a float ONNX model into one of int8, with the error of each layer"
DEFAULT_COMPARED = 32
METHODS: dict[str, Method] = {
    "minmax": "MinMax",
    "entropy": "Entropy",
    "percentile": "Percentile",
}
ACTIVATIONS: dict[str, Activations] = {"int8": "QInt8", "uint8": "QUInt8"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=".onnx file, of floats")
    add_onnx_input_options(parser)
    parser.add_argument(
        "--data",
        metavar="DIR",
        required=True,
        help="samples as they occur, one a file: .npy with the input, or .npz with all inputs",
    )
    parser.add_argument("-o", "--out", metavar="OUT", required=True, help="the .onnx file to write")
    parser.add_argument(
        "--method",
        choices=tuple(METHODS),
        default="minmax",
        help="how ranges are found: the widest seen, or one that cuts off what is rare (minmax)",
    )
    parser.add_argument(
        "--activations",
        choices=tuple(ACTIVATIONS),
        default="int8",
        help="element type between layers; weights are int8 (int8)",
    )
    parser.add_argument(
        "--per-tensor",
        action="store_true",
        help="one scale for all weights of a layer, not one for each channel",
    )
    parser.add_argument(
        "--exclude",
        metavar="NAME",
        action="append",
        default=[],
        help="the operator of this name, or with this result, stays in floats",
    )
    parser.add_argument(
        "--compare",
        metavar="N",
        type=positive_int,
        default=DEFAULT_COMPARED,
        help=f"most samples that the table of errors is made from ({DEFAULT_COMPARED})",
    )


def run(args: argparse.Namespace) -> Outcome:
    model = load_model(args.model, given=model_overrides(args))
    samples = read_calibration_samples(args.data, model_inputs(model))
    how = QuantizeOptions(
        METHODS[args.method],
        ACTIVATIONS[args.activations],
        not args.per_tensor,
        tuple(args.exclude),
    )
    found = quantize_onnx_model(model, samples, how, args.compare)
    write_file(args.out, found.model)
    size = len(model.source or b"")
    return Outcome(
        quantization_to_json(found, args.model, args.out, size),
        format_summary(found, args.model, args.out, size),
    )


def quantization_to_json(
    found: QuantizationResult, model: str, out: str, size_bytes: int
) -> dict[str, Any]:
    """The keys of `quantize --json`; layers stand worst first."""
    return {
        "model": model,
        "out": out,
        "tool": found.tool,
        "samples": found.calibrated_with,
        "compared": found.compared,
        "float_bytes": size_bytes,
        "quantized_bytes": len(found.model),
        "in_floats": list(found.in_floats),
        "layers": [asdict(layer) for layer in found.worst_first],
    }


def format_summary(found: QuantizationResult, model: str, out: str, size_bytes: int) -> str:
    head = ["layer", "operator", "SQNR dB", "mean error", "max error", "largest value"]
    lines: list[tuple[str, Cell]] = [
        ("written", f"{out}, {len(found.model):,} bytes, of {model}, {size_bytes:,} bytes"),
        ("made by", found.tool),
        ("calibrated with", f"{found.calibrated_with:,} samples"),
        ("errors over", f"{found.compared:,} samples, worst layer first"),
        ("left in floats", ", ".join(found.in_floats) or "nothing"),
    ]
    rows = [_row(layer) for layer in found.worst_first]
    return f"{format_pairs(lines)}\n\n{format_table(head, rows)}"


def _row(layer: LayerAccuracy) -> list[Cell]:
    errors = (f"{value:.3g}" for value in (layer.mean_abs_error, layer.max_abs_error))
    return [
        layer.name,
        layer.op,
        layer.sqnr_db,
        *errors,
        f"{layer.largest:.3g}",
    ]
