"""`firmwright ops`: the operators there are, and what imports as which."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from firmwright.cli.base import Outcome
from firmwright.cli.table import Cell, table
from firmwright.ops.registry import op_table

NAME = "ops"
HELP = "list the operators"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There is nothing to say."""


def run(args: argparse.Namespace) -> Outcome:
    data = [
        {
            "name": opdef.name,
            "tflite": _imports(opdef.imports, "tflite:"),
            "onnx": _imports(opdef.imports, "onnx:"),
            "dtypes": list(opdef.dtypes),
        }
        for _, opdef in sorted(op_table().items())
    ]
    rows: list[list[Cell]] = [
        [str(row["name"]), *(" ".join(row[key]) for key in ("tflite", "onnx", "dtypes"))]
        for row in data
    ]
    return Outcome({"operators": data}, table(["operator", "TFLite", "ONNX", "dtypes"], rows))


def _imports(names: Iterable[str], prefix: str) -> list[str]:
    return sorted(n.removeprefix(prefix) for n in names if n.startswith(prefix))
