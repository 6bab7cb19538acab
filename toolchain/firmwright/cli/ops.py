"""`firmwright ops`: list the supported operators and their TFLite and ONNX names."""

import argparse
import textwrap
from typing import TYPE_CHECKING

from firmwright.cli.text_table import format_table
from firmwright.cli.verb import Outcome
from firmwright.flows.verify.operator_names import (
    listed_operators,
    onnx_operators,
    tflite_names,
)
from firmwright.ops.opdef import OpTable
from firmwright.ops.registry import op_table

if TYPE_CHECKING:
    from firmwright.flows.verify.operator_catalog import SupportedOperator


def run(args: argparse.Namespace) -> Outcome:
    ops, onnx = op_table(), onnx_operators()
    if args.json:
        return Outcome({"operators": _catalog(ops), "onnx": onnx})
    rows: list[tuple[str, str, str]] = []
    for item in listed_operators(ops):
        names = " ".join(tflite_names(item.name))
        rows.append((item.name, names, " ".join(item.dtypes)))
    table = format_table(["operator", "TFLite", "dtypes"], rows)
    onnx_names = textwrap.fill(f"ONNX: {', '.join(onnx)}.", 80)
    return Outcome(text=f"{table}\n\n{onnx_names}")


def _catalog(ops: OpTable) -> "list[SupportedOperator]":
    """Return all about the operators, from every schedule and conformance case."""
    from firmwright.flows.verify.operator_catalog import supported_operators
    from firmwright.schedules.registry import SCHEDULES

    return supported_operators(ops, SCHEDULES)
