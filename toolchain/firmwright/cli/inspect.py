"""`firmwright inspect`: what a model is, and what of it is not supported."""

from __future__ import annotations

import argparse
from typing import Any

from firmwright.cli.shared_options import Outcome, add_onnx_input_options, model_overrides
from firmwright.cli.text_table import Cell, format_pairs, format_shape, format_table
from firmwright.flows.model_inspection import Inspection, ModelTensor, inspect_model

NAME = "inspect"
HELP = "show a model's tensors, operators and cost, and what is unsupported"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=".tflite, .onnx or .fwir file")
    add_onnx_input_options(parser)


def run(args: argparse.Namespace) -> Outcome:
    found = inspect_model(args.model, model_overrides(args))
    return Outcome(inspection_to_json(found), format_summary(found))


def inspection_to_json(found: Inspection) -> dict[str, Any]:
    """The keys of `inspect --json`."""
    return {
        "model": found.name,
        "stage": found.stage,
        "inputs": [_tensor(tensor) for tensor in found.inputs],
        "outputs": [_tensor(tensor) for tensor in found.outputs],
        "operators": [
            {
                "index": operator.index,
                "kind": operator.kind,
                "inputs": [_tensor(tensor) for tensor in operator.inputs],
                "outputs": [_tensor(tensor) for tensor in operator.outputs],
                "macs": operator.macs,
            }
            for operator in found.operators
        ],
        "macs": found.macs,
        "parameters_bytes": found.parameters_bytes,
        "supported": not found.unsupported,
        "unsupported": [
            {"op": item.op, "where": item.where, "why": item.why} for item in found.unsupported
        ],
    }


def _tensor(tensor: ModelTensor) -> dict[str, Any]:
    quantization = tensor.quantization
    return {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "scales": list(quantization.scales) if quantization else None,
        "zero_points": list(quantization.zero_points) if quantization else None,
    }


def format_summary(found: Inspection) -> str:
    head: list[tuple[str, Cell]] = [("model", found.name), ("stage", found.stage)]
    head += [("input", _line(tensor)) for tensor in found.inputs]
    head += [("output", _line(tensor)) for tensor in found.outputs]
    head += [("parameters", f"{found.parameters_bytes:,} bytes"), ("multiply-adds", found.macs)]
    rows: list[list[Cell]] = [
        [
            operator.index,
            operator.kind,
            ", ".join(format_shape(tensor.shape) for tensor in operator.inputs),
            ", ".join(format_shape(tensor.shape) for tensor in operator.outputs),
            ", ".join(sorted({tensor.dtype for tensor in operator.outputs})),
            operator.macs or None,
        ]
        for operator in found.operators
    ]
    parts = [format_pairs(head)]
    if rows:
        parts.append(format_table(["", "operator", "in", "out", "dtype", "MACs"], rows))
    if found.unsupported:
        bad: list[list[Cell]] = [[item.op, item.where, item.why] for item in found.unsupported]
        parts.append("Not supported:\n" + format_table(["operator", "where", "why"], bad))
    return "\n\n".join(parts)


def _line(tensor: ModelTensor) -> str:
    text = f"{tensor.name}: {tensor.dtype} {format_shape(tensor.shape)}"
    quantization = tensor.quantization
    if quantization is None or not quantization.scales:
        return text
    if len(quantization.scales) > 1:
        return f"{text}, {len(quantization.scales)} scales"
    return f"{text}, scale {quantization.scales[0]:.6g}, zero point {quantization.zero_points[0]}"
