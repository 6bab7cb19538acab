"""`firmwright bound`: bound instructions and modeled cycles of a run for all inputs."""

import argparse
from pathlib import Path

from firmwright.artifacts import SourceTree
from firmwright.base.json_input import Json, JsonObject
from firmwright.base.rounding import divide_up
from firmwright.base.templates import render_template
from firmwright.boards import load_board
from firmwright.cli import arguments
from firmwright.cli.session_arguments import make_session_opener
from firmwright.cli.text_table import Cell, format_pairs, format_table
from firmwright.cli.verb import Outcome
from firmwright.flows.measure.instruction_counts import (
    InstructionShare,
    measure_instructions,
)
from firmwright.flows.measure.time_bound import OperatorBound, TimeBound, bound_time
from firmwright.package.project_writer import add_file_list, with_facts, write_project
from firmwright.pipeline import Compilation
from firmwright.pipeline.configuration import make_emit_options
from firmwright.targets.run_time import describe_place, format_ms


def run(args: argparse.Namespace) -> Outcome:
    compiled = arguments.compile_from_args(args)
    timing_board = None
    if args.timing_board:
        timing_board = load_board(args.timing_board, args.board_dirs)
    bound = bound_time(
        compiled,
        compiler=args.compiler,
        timing_board=timing_board,
        timeout_s=args.timeout,
    )
    data = bound_to_json(bound)
    if args.output:
        write_project(with_bound(compiled, data), Path(args.output))
    measured: InstructionShare | None = None
    if args.measure:
        opener = make_session_opener(args)
        measured = measure_instructions(
            compiled,
            open_with=opener,
            compiler=args.compiler,
            timing_board=timing_board,
        ).total
        data["measured"] = {
            "instructions": measured.instructions,
            "cycles": measured.cycles,
        }
    ticks = compiled.board.counter
    step = divide_up(*ticks.scale) if ticks.unit == "instructions" else 1
    return Outcome(data, format_summary(bound, measured, step))


def bound_to_json(bound: TimeBound) -> dict[str, Json]:
    longest = None if bound.longest is None else _operator_to_json(bound.longest)
    return {
        "model": bound.model,
        "board": bound.board,
        "instructions": bound.instructions,
        "cycles": bound.cycles,
        "milliseconds_at_most": bound.most_ms,
        "clock_hz": bound.clock_hz or None,
        "stack_bytes": bound.stack.size_bytes,
        "longest_operator": longest,
        "operators": [_operator_to_json(operator) for operator in bound.operators],
    }


def _operator_to_json(operator: OperatorBound) -> dict[str, Json]:
    return {
        "index": operator.index,
        "name": operator.name,
        "instructions": operator.instructions,
        "cycles": operator.cycles,
    }


def format_summary(
    bound: TimeBound, measured: InstructionShare | None, step: int = 1
) -> str:
    """Format the bound; `step` is a tick of the board's counter in instructions."""
    rows: list[tuple[str, Cell]] = [
        ("model", bound.model),
        ("board", bound.board),
        ("time", _format_time(bound)),
        ("instructions per run, at most", bound.instructions),
        ("modeled cycles, at most", bound.cycles),
        ("stack, worst path", f"{bound.stack.size_bytes:,} bytes"),
        ("longest operator", bound.longest.label if bound.longest else None),
    ]
    if measured is not None:
        count = measured.instructions
        rows += [
            ("measured instructions", count),
            ("ratio", f"{bound.instructions / count:.4f}"),
        ]
    if step > 1:
        text = f"counts in steps of {step}, so it may show up to {step} more"
        rows.append(("the board's counter", text))
    total = bound.instructions
    table: list[list[Cell]] = []
    for item in bound.operators:
        share = f"{100 * item.instructions / total:.1f} %"
        counts = (item.instructions, item.cycles)
        table.append([item.index, item.label, *counts, share])
    head = ["#", "operator", "instructions", "cycles", "share"]
    return f"{format_pairs(rows)}\n\n{format_table(head, table)}"


def _format_time(bound: TimeBound) -> str | None:
    if bound.most_ms is None:
        return None
    place = describe_place(bound.clock_hz, bound.chip)
    return f"modeled at most {format_ms(bound.most_ms)} ms {place}"


def with_bound(compiled: Compilation, data: JsonObject) -> SourceTree:
    """Return the project with a bound in metadata.json and in NAME_bound.h."""
    project, header = compiled.project(), f"model/{compiled.module.name}_bound.h"
    emitted = make_emit_options(compiled.board, compiled.options)
    notice = {"spdx": emitted.spdx, "banner": emitted.banner}
    template = "bound/NAME_bound.h.j2"
    macros = render_template("firmwright.package", template, bound=data, **notice)
    project = project.merged(SourceTree({header: macros}))
    return with_facts(project, add_file_list({"bound": data}, project))
