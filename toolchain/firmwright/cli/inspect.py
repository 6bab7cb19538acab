"""`firmwright inspect`: show a model's tensors, operators and unsupported features."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from firmwright.base.display_names import format_shape
from firmwright.base.errors import UnsupportedError
from firmwright.cli.model_argument import model_overrides
from firmwright.cli.text_table import Cell, format_pairs, format_table
from firmwright.cli.verb import Outcome
from firmwright.flows.model.model_inspection import (
    Inspection,
    ModelOperator,
    ModelTensor,
    inspect_model,
)

TRANSPOSES_NOTE = (
    "These are the operators of the file. Transposes that cancel each other are\n"
    "removed when it is compiled; profile lists the operators that run."
)


def run(args: argparse.Namespace) -> Outcome:
    inspection = inspect_model(args.model, model_overrides(args))
    error = None
    if args.strict and inspection.unsupported:
        error = UnsupportedError(inspection.unsupported, where=args.model)
    data, text = inspection_to_json(inspection), format_summary(inspection)
    if args.board and not inspection.unsupported:
        fit, summary = _fit(args)
        data["fit"] = fit
        text = f"{text}\n\n{summary}"
    return Outcome(data, text, error)


def _fit(args: argparse.Namespace) -> tuple[dict[str, object], str]:
    """Return the fit on the board, for JSON and as text."""
    # The compiler is imported only if a board is named.
    from firmwright.cli.fit import fit_to_json, format_fit
    from firmwright.flows.model.model import load_model
    from firmwright.flows.predict.fit import fit_model

    model = load_model(args.model, overrides=model_overrides(args))
    folders: tuple[Path, ...] = tuple(args.board_dirs or ())
    fit = fit_model(model, {"board": args.board, "board_dirs": folders})
    return fit_to_json(fit), format_fit(fit)


def inspection_to_json(inspection: Inspection) -> dict[str, object]:
    return {
        "model": inspection.name,
        "stage": inspection.stage,
        "macs": inspection.macs,
        "parameters_bytes": inspection.parameters_bytes,
        "unsupported": inspection.unsupported,
        "supported": not inspection.unsupported,
        "inputs": [_tensor_to_json(tensor) for tensor in inspection.inputs],
        "outputs": [_tensor_to_json(tensor) for tensor in inspection.outputs],
        "operators": [_operator_to_json(operator) for operator in inspection.operators],
    }


def _operator_to_json(operator: ModelOperator) -> dict[str, object]:
    return {
        "index": operator.index,
        "kind": operator.kind,
        "macs": operator.macs,
        "inputs": [_tensor_to_json(tensor) for tensor in operator.inputs],
        "outputs": [_tensor_to_json(tensor) for tensor in operator.outputs],
    }


def _tensor_to_json(tensor: ModelTensor) -> dict[str, object]:
    quantization = tensor.quantization
    return {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": tensor.shape,
        "scales": quantization.scales if quantization else None,
        "zero_points": quantization.zero_points if quantization else None,
    }


def format_summary(inspection: Inspection) -> str:
    head: list[tuple[str, Cell]] = [
        ("model", inspection.name),
        ("stage", inspection.stage),
    ]
    head += [("input", _format_tensor(tensor)) for tensor in inspection.inputs]
    head += [("output", _format_tensor(tensor)) for tensor in inspection.outputs]
    head.append(("parameters", f"{inspection.parameters_bytes:,} bytes"))
    head.append(("multiply-adds", inspection.macs))
    rows: list[Sequence[Cell]] = []
    for operator in inspection.operators:
        inputs = _format_shapes(operator.inputs)
        outputs = _format_shapes(operator.outputs)
        dtypes = ", ".join(sorted({tensor.dtype for tensor in operator.outputs}))
        macs = operator.macs or None
        rows.append((operator.index, operator.kind, inputs, outputs, dtypes, macs))
    parts = [format_pairs(head)]
    if rows:
        parts.append(format_table(["", "operator", "in", "out", "dtype", "MACs"], rows))
    if any(operator.kind == "transpose" for operator in inspection.operators):
        parts.append(TRANSPOSES_NOTE)
    if inspection.unsupported:
        unsupported: list[tuple[str, str, str]] = []
        for item in inspection.unsupported:
            unsupported.append((item.op, item.where, item.why))
        table = format_table(["operator", "where", "reason"], unsupported)
        parts.append(f"Not supported:\n{table}")
        hint = UnsupportedError(inspection.unsupported).hint
        if hint:
            parts.append(format_pairs([("Try:", hint)]))
        parts.append("With --strict, inspect fails if something is not supported.")
    return "\n\n".join(parts)


def _format_shapes(tensors: Sequence[ModelTensor]) -> str:
    return ", ".join(format_shape(tensor.shape) for tensor in tensors)


def _format_tensor(tensor: ModelTensor) -> str:
    text = f"{tensor.name}: {tensor.dtype} {format_shape(tensor.shape)}"
    quantization = tensor.quantization
    if quantization is None or not quantization.scales:
        return text
    if len(quantization.scales) > 1:
        return f"{text}, {len(quantization.scales)} scales"
    zero_point = quantization.zero_points[0]
    return f"{text}, scale {quantization.scales[0]:.6g}, zero point {zero_point}"
