"""`firmwright ops`: list the supported operators and their TFLite and ONNX names."""

import argparse
import textwrap

from firmwright.cli.text_table import format_table
from firmwright.cli.verb import Outcome
from firmwright.flows.verify.operator_catalog import onnx_operators, supported_operators
from firmwright.ops.registry import op_table
from firmwright.schedules.registry import SCHEDULES


def run(args: argparse.Namespace) -> Outcome:
    # The table does not name the schedules, and their modules take longer to load than the rest.
    operators = supported_operators(op_table(), SCHEDULES if args.json else ())
    rows = [(item.name, " ".join(item.tflite), " ".join(item.dtypes)) for item in operators]
    onnx = onnx_operators()
    data = {"operators": operators, "onnx": onnx}
    names = textwrap.fill(f"ONNX: {', '.join(onnx)}.", 80)
    return Outcome(data, f"{format_table(['operator', 'TFLite', 'dtypes'], rows)}\n\n{names}")
