"""`firmwright partition`: the module with every operator assigned to a target, as a file."""

from __future__ import annotations

import argparse

from firmwright.cli.base import Outcome, add_model, model_of
from firmwright.flows.model import partition, save_module
from firmwright.ir.graph.nodes import Function

NAME = "partition"
HELP = "assign a model's operators to a target and write the module"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--target", metavar="T", required=True, help="e.g. 'cortex-m -mcpu=...'")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the .fwir file")


def run(args: argparse.Namespace) -> Outcome:
    module = partition(model_of(args), args.target).module
    save_module(module, args.output)
    entry = module.entry
    count = len(entry.body) if isinstance(entry, Function) else 0
    (target,) = module.targets.values()
    data = {
        "model": module.name,
        "file": args.output,
        "targets": [{"target": str(target), "operators": count}],
    }
    return Outcome(data, f"{args.output}: {count} operators for {target}")
