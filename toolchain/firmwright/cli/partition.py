"""`firmwright partition`: assign operators to targets and write the module."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from firmwright.base.errors import UsageError
from firmwright.cli import arguments
from firmwright.cli.text_table import Cell, format_table
from firmwright.cli.verb import Outcome, add_options
from firmwright.flows.model import Model, partition, save_module, write_file
from firmwright.flows.partition_summary import target_shares
from firmwright.partitioning.partition_result import PartitionResult
from firmwright.pipeline import OPTIMIZE_GOALS
from firmwright.tune.partition_methods import (
    COLLAGE,
    EAGER,
    NONE,
    partition_model,
    search_partition,
)

NAME = "partition"
HELP = "assign a model's operators to targets and write the module"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_model_options(parser)
    add_options(
        parser,
        """
        --target T  targets in order of preference, e.g. 'npu1 -lanes=8, cortex-m -mcpu=cortex-m4'
        -o --output FILE  write the module to this .fwir file
        """,
        target={"required": True},
    )
    arguments.add_numerics_option(parser)
    arguments.add_partition_options(parser)
    search = parser.add_argument_group("collage")
    add_options(
        search,
        """
        --save-partition FILE  write the partition as JSON, to edit and apply with --partition
            FILE
        """,
    )
    arguments.add_board_options(search)
    add_options(
        search,
        "--optimize  objective; ram minimizes memory first",
        optimize={"choices": OPTIMIZE_GOALS},
    )
    arguments.add_measurement_options(search)


def run(args: argparse.Namespace) -> Outcome:
    if args.save_partition and args.partition != COLLAGE:
        raise UsageError("--save-partition needs a search.", hint="add --partition collage.")
    if not args.output and not args.save_partition:
        raise UsageError("no output was given.", hint="add -o FILE, or --save-partition FILE.")
    search_result: PartitionResult | None = None
    if args.partition == COLLAGE:
        result = search_partition(
            arguments.load_model_argument(args),
            arguments.compile_options(args),
            arguments.partition_request(args),
        )
        search_result, model = result.partition, result.model
    else:
        model = _partitioned_model(args)
    if args.save_partition and search_result is not None:
        write_file(args.save_partition, search_result.text().encode())
    if args.output:
        save_module(model.module, args.output)
    shares = target_shares(model.module)
    data: dict[str, Any] = {
        "model": model.name,
        "file": args.output,
        "targets": [
            {"target": part.target, "operators": part.operators, "functions": list(part.functions)}
            for part in shares
        ],
        **({"search": search_result.as_json()} if search_result else {}),
    }
    rows: list[Sequence[Cell]] = [[p.target, p.operators, len(p.functions)] for p in shares]
    texts = [format_table(("target", "operators", "functions"), rows)]
    texts = [_format_search(search_result), *texts] if search_result else texts
    files = [file for file in (args.save_partition, args.output) if file]
    return Outcome(data, "\n\n".join([*texts, "\n".join(files)]))


def _partitioned_model(args: argparse.Namespace) -> Model:
    if args.partition == EAGER:
        return partition(arguments.load_model_argument(args), args.target, args.numerics or "")
    model, options = partition_model(
        arguments.load_model_argument(args),
        arguments.compile_options(args),
        arguments.partition_request(args),
    )
    if args.partition == NONE and options["target"]:
        return partition(model, options["target"], args.numerics or "")
    return model


def _format_search(result: PartitionResult) -> str:
    parts: list[Sequence[Cell]] = [
        [
            " ".join(part.ops),
            part.target,
            _format_cost(part.cost),
            _format_alternatives(part.alternatives),
        ]
        for part in result.parts
    ]
    programs: list[Sequence[Cell]] = [
        [
            how + (" (chosen)" if how == result.chosen else ""),
            total.count if total.count is not None else total.reason,
            total.workspace_bytes or None,
            total.flash_bytes,
        ]
        for how, total in result.totals.items()
    ]
    return "\n\n".join(
        (
            format_table(["operators", "target", result.unit, "alternatives"], parts),
            format_table(["program", result.unit, "workspace bytes", "image's flash"], programs),
        )
    )


def _format_alternatives(alternatives: Sequence[Any]) -> str:
    return ", ".join(f"{other.target} {_format_cost(other.cost)}" for other in alternatives)


def _format_cost(cost: Any) -> Cell:
    match cost.status:
        case "ok":
            return f"{cost.count:,}" + (" (modeled)" if cost.how == "modelled" else "")
        case "failed":
            return f"failed: {cost.reason}"
        case _:
            return "unknown"
