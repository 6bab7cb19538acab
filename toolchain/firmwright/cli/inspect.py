"""`firmwright inspect`: show a model's tensors, operators and unsupported features."""

from __future__ import annotations

import argparse
from typing import Any

from firmwright.cli import arguments
from firmwright.cli.text_table import Cell, format_pairs, format_shape, format_table
from firmwright.cli.verb import Outcome
from firmwright.flows.model_inspection import Inspection, ModelTensor, inspect_model

NAME = "inspect"
HELP = "show a model's tensors, operators, cost and unsupported features"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=".tflite, .onnx or .fwir file")
    arguments.add_onnx_input_options(parser)


def run(args: argparse.Namespace) -> Outcome:
    inspection = inspect_model(args.model, arguments.model_overrides(args))
    return Outcome(inspection_to_json(inspection), format_summary(inspection))


def inspection_to_json(inspection: Inspection) -> dict[str, Any]:
    return {
        "model": inspection.name,
        "stage": inspection.stage,
        "inputs": [_tensor_to_json(tensor) for tensor in inspection.inputs],
        "outputs": [_tensor_to_json(tensor) for tensor in inspection.outputs],
        "operators": [
            {
                "index": operator.index,
                "kind": operator.kind,
                "inputs": [_tensor_to_json(tensor) for tensor in operator.inputs],
                "outputs": [_tensor_to_json(tensor) for tensor in operator.outputs],
                "macs": operator.macs,
            }
            for operator in inspection.operators
        ],
        "macs": inspection.macs,
        "parameters_bytes": inspection.parameters_bytes,
        "supported": not inspection.unsupported,
        "unsupported": [
            {"op": item.op, "where": item.where, "why": item.why} for item in inspection.unsupported
        ],
    }


def _tensor_to_json(tensor: ModelTensor) -> dict[str, Any]:
    quantization = tensor.quantization
    return {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "scales": list(quantization.scales) if quantization else None,
        "zero_points": list(quantization.zero_points) if quantization else None,
    }


def format_summary(inspection: Inspection) -> str:
    head: list[tuple[str, Cell]] = [("model", inspection.name), ("stage", inspection.stage)]
    head += [("input", _format_tensor(tensor)) for tensor in inspection.inputs]
    head += [("output", _format_tensor(tensor)) for tensor in inspection.outputs]
    head += [
        ("parameters", f"{inspection.parameters_bytes:,} bytes"),
        ("multiply-adds", inspection.macs),
    ]
    rows: list[list[Cell]] = [
        [
            operator.index,
            operator.kind,
            ", ".join(format_shape(tensor.shape) for tensor in operator.inputs),
            ", ".join(format_shape(tensor.shape) for tensor in operator.outputs),
            ", ".join(sorted({tensor.dtype for tensor in operator.outputs})),
            operator.macs or None,
        ]
        for operator in inspection.operators
    ]
    parts = [format_pairs(head)]
    if rows:
        parts.append(format_table(["", "operator", "in", "out", "dtype", "MACs"], rows))
    if inspection.unsupported:
        unsupported: list[list[Cell]] = [
            [item.op, item.where, item.why] for item in inspection.unsupported
        ]
        parts.append(
            "Not supported:\n" + format_table(["operator", "where", "reason"], unsupported)
        )
    return "\n\n".join(parts)


def _format_tensor(tensor: ModelTensor) -> str:
    text = f"{tensor.name}: {tensor.dtype} {format_shape(tensor.shape)}"
    quantization = tensor.quantization
    if quantization is None or not quantization.scales:
        return text
    if len(quantization.scales) > 1:
        return f"{text}, {len(quantization.scales)} scales"
    return f"{text}, scale {quantization.scales[0]:.6g}, zero point {quantization.zero_points[0]}"
