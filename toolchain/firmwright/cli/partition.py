"""`firmwright partition`: the module with every operator given to a target, as a file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from firmwright.base.errors import UsageError
from firmwright.cli.shared_options import (
    Outcome,
    add_board_options,
    add_model_options,
    add_partition_options,
    compile_options,
    load_model_argument,
    partition_request,
    positive_seconds,
)
from firmwright.cli.text_table import Cell, format_table
from firmwright.flows.model import Model, partition, save_module, write_file
from firmwright.flows.partition_summary import target_shares
from firmwright.partitioning.partition_result import PartitionResult
from firmwright.pipeline import NUMERICS, OPTIMIZE_GOALS
from firmwright.tune.partition_methods import (
    COLLAGE,
    EAGER,
    NONE,
    partition_model,
    search_partition,
)

NAME = "partition"
HELP = "give a model's operators to targets and write the module"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_options(parser)
    parser.add_argument(
        "--target",
        metavar="T",
        required=True,
        help="in order of preference, e.g. 'npu1 -lanes=8, cortex-m -mcpu=cortex-m4'",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="the .fwir file")
    parser.add_argument("--numerics", choices=NUMERICS, help="whose roundings (litert)")
    add_partition_options(parser)
    search = parser.add_argument_group("collage")
    search.add_argument(
        "--save-partition",
        metavar="FILE",
        help="write what was found as JSON, for people to edit and --partition FILE to apply",
    )
    add_board_options(search)
    search.add_argument("--optimize", choices=OPTIMIZE_GOALS, help="ram: the least memory first")
    search.add_argument("--port", metavar="URL", default="", help="of a board, which then counts")
    search.add_argument("--flash", metavar="COMMAND", default="", help="puts {elf}, {bin} on it")
    search.add_argument(
        "--timeout", metavar="S", type=positive_seconds, help="seconds for one run (300)"
    )


def run(args: argparse.Namespace) -> Outcome:
    if args.save_partition and args.partition != COLLAGE:
        raise UsageError("--save-partition is what --partition collage found.")
    if not args.output and not args.save_partition:
        raise UsageError("nothing is to be written.", hint="-o FILE, or --save-partition FILE.")
    found: PartitionResult | None = None
    if args.partition == COLLAGE:
        made = search_partition(
            load_model_argument(args), compile_options(args), partition_request(args)
        )
        found, model = made.partition, made.model
    else:
        model = _given(args)
    if args.save_partition and found is not None:
        write_file(args.save_partition, found.text().encode())
    if args.output:
        save_module(model.module, args.output)
    parts = target_shares(model.module)
    data: dict[str, Any] = {
        "model": model.name,
        "file": args.output,
        "targets": [
            {"target": part.target, "operators": part.operators, "functions": list(part.functions)}
            for part in parts
        ],
        **({"search": found.as_json()} if found else {}),
    }
    rows: list[Sequence[Cell]] = [[p.target, p.operators, len(p.functions)] for p in parts]
    shown = [format_table(("target", "operators", "functions"), rows)]
    shown = [_searched(found), *shown] if found else shown
    files = [file for file in (args.save_partition, args.output) if file]
    return Outcome(data, "\n\n".join([*shown, "\n".join(files)]))


def _given(args: argparse.Namespace) -> Model:
    if args.partition == EAGER:
        return partition(load_model_argument(args), args.target, args.numerics or "")
    model, options = partition_model(
        load_model_argument(args), compile_options(args), partition_request(args)
    )
    if args.partition == NONE and options["target"]:
        return partition(model, options["target"], args.numerics or "")
    return model


def _searched(found: PartitionResult) -> str:
    """What was chosen, what else there was, and whole programs beside each other."""
    parts: list[Sequence[Cell]] = [
        [" ".join(part.ops), part.target, _count(part.cost), _others(part.alternatives)]
        for part in found.parts
    ]
    programs: list[Sequence[Cell]] = [
        [
            how + (" (taken)" if how == found.chosen else ""),
            total.count if total.count is not None else total.reason,
            total.workspace_bytes or None,
            total.flash_bytes,
        ]
        for how, total in found.totals.items()
    ]
    return "\n\n".join(
        (
            format_table(["operators", "target", found.unit, "or else"], parts),
            format_table(["program", found.unit, "workspace bytes", "image's flash"], programs),
        )
    )


def _others(alternatives: Sequence[Any]) -> str:
    return ", ".join(f"{other.target} {_count(other.cost)}" for other in alternatives)


def _count(cost: Any) -> Cell:
    match cost.status:
        case "ok":
            return f"{cost.count:,}" + (" (modelled)" if cost.how == "modelled" else "")
        case "failed":
            return f"failed: {cost.reason}"
        case _:
            return "unknown"
