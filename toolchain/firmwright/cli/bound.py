"""`firmwright bound`: bound the instructions and modeled cycles of a run for all inputs."""

import argparse
import json
from pathlib import Path
from typing import Any

from firmwright.base.errors import UsageError
from firmwright.base.json_input import parse_json
from firmwright.boards import load_board
from firmwright.cli import arguments
from firmwright.cli.text_table import Cell, format_pairs, format_table
from firmwright.cli.verb import Outcome, fields_of
from firmwright.flows.instruction_counts import measure_instructions
from firmwright.flows.model import write_file
from firmwright.flows.time_bound import TimeBound, bound_time


def run(args: argparse.Namespace) -> Outcome:
    compiled = arguments.compile_from_args(args)
    timing_board = load_board(args.timing_board) if args.timing_board else None
    bound = bound_time(compiled, compiler=args.compiler, timing_board=timing_board)
    data = bound_to_json(bound)
    if args.output:
        _write_to_project(Path(args.output), data)
    if args.measure:
        opener = arguments.make_session_opener(args)
        more = {"compiler": args.compiler, "timing_board": timing_board}
        total = measure_instructions(compiled, open_with=opener, **more).total
        data["measured"] = fields_of(total, "instructions cycles")
    return Outcome(data, format_summary(bound, data.get("measured")))


def bound_to_json(bound: TimeBound) -> dict[str, Any]:
    fields = "index name instructions cycles"
    return {
        **fields_of(bound, "model board instructions cycles"),
        "stack_bytes": bound.stack.size_bytes,
        "longest_operator": bound.longest and fields_of(bound.longest, fields),
        "operators": [fields_of(operator, fields) for operator in bound.operators],
    }


def format_summary(bound: TimeBound, measured: dict[str, Any] | None) -> str:
    rows: list[tuple[str, Cell]] = [
        ("model", bound.model),
        ("board", bound.board),
        ("instructions per run, at most", bound.instructions),
        ("modeled cycles, at most", bound.cycles),
        ("stack, worst path", f"{bound.stack.size_bytes:,} bytes"),
        ("longest operator", bound.longest.name if bound.longest else None),
    ]
    if measured is not None:
        count = measured["instructions"]
        rows += [("measured instructions", count), ("ratio", f"{bound.instructions / count:.4f}")]
    total = bound.instructions
    table: list[list[Cell]] = [
        [o.index, o.name, o.instructions, o.cycles, f"{100 * o.instructions / total:.1f} %"]
        for o in bound.operators
    ]
    head = ["#", "operator", "instructions", "cycles", "share"]
    return f"{format_pairs(rows)}\n\n{format_table(head, table)}"


def _write_to_project(folder: Path, data: dict[str, Any]) -> None:
    """Add the bound to metadata.json of a project, and write the header NAME_bound.h."""
    file = folder / "metadata.json"
    if not file.is_file():
        raise UsageError(
            "there is no metadata.json.", where=str(folder), hint="name a built project."
        )
    metadata = parse_json(file.read_text(encoding="utf-8"))
    write_file(str(file), (json.dumps({**metadata, "bound": data}, indent=2) + "\n").encode())
    name, longest = data["model"], data["longest_operator"] or {"instructions": 0}
    macros = {
        "RUN_MAX_INSTRUCTIONS": data["instructions"],
        "RUN_MAX_CYCLES": data["cycles"],
        "RUN_MAX_STACK_BYTES": data["stack_bytes"],
        "OPERATOR_MAX_INSTRUCTIONS": longest["instructions"],
    }
    lines = [f"/* Upper bounds of {name}_run on {data['board']}, without interrupts. */"]
    lines += [f"#define {name.upper()}_{key} {value}u" for key, value in macros.items() if value]
    write_file(str(folder / f"model/{name}_bound.h"), ("\n".join(lines) + "\n").encode())
