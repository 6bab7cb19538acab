"""`firmwright ops`: the operators there are, and what imports as which."""

from __future__ import annotations

import argparse
import textwrap
from dataclasses import asdict

from firmwright.cli.shared_options import Outcome
from firmwright.cli.text_table import Cell, format_table
from firmwright.flows.operator_catalog import onnx_operators, supported_operators
from firmwright.ops.registry import op_table
from firmwright.schedules.registry import RULES

NAME = "ops"
HELP = "list the operators"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There is nothing to say."""


def run(args: argparse.Namespace) -> Outcome:
    found = supported_operators(op_table(), RULES)
    rows: list[list[Cell]] = [
        [item.name, *(" ".join(names) for names in (item.tflite, item.dtypes))] for item in found
    ]
    onnx = onnx_operators()
    data = {"operators": [asdict(item) for item in found], "onnx": list(onnx)}
    names = textwrap.fill(f"Of ONNX: {', '.join(onnx)}.", 100)
    return Outcome(data, f"{format_table(['operator', 'TFLite', 'dtypes'], rows)}\n\n{names}")
