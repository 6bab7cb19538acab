"""`firmwright partition`: the module with every operator given to a target, as a file."""

from __future__ import annotations

import argparse

from firmwright.cli.base import Outcome, add_model, model_of
from firmwright.cli.table import Cell, table
from firmwright.flows.model import partition, save_module
from firmwright.flows.partitions import Part, parts_of

NAME = "partition"
HELP = "give a model's operators to targets and write the module"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument(
        "--target",
        metavar="T",
        required=True,
        help="in order of preference, e.g. 'npu1 -lanes=8, cortex-m -mcpu=cortex-m4'",
    )
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the .fwir file")


def run(args: argparse.Namespace) -> Outcome:
    module = partition(model_of(args), args.target).module
    save_module(module, args.output)
    parts = parts_of(module)
    data = {
        "model": module.name,
        "file": args.output,
        "targets": [
            {"target": part.target, "operators": part.operators, "functions": list(part.functions)}
            for part in parts
        ],
    }
    shown = table(("target", "operators", "functions"), [_row(part) for part in parts])
    return Outcome(data, f"{shown}\n{args.output}")


def _row(part: Part) -> list[Cell]:
    return [part.target, part.operators, len(part.functions)]
