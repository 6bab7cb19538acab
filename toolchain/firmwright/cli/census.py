"""`firmwright census`: compile and verify every model in a folder."""

import argparse
import os
from collections.abc import Sequence

from firmwright.base.errors import MismatchError
from firmwright.cli import arguments
from firmwright.cli.text_table import Cell, format_table
from firmwright.cli.verb import Outcome
from firmwright.flows.census import CensusTask, take_census
from firmwright.flows.executors import open_executor
from firmwright.flows.model import find_model_files, write_file
from firmwright.report.census_page import STATUS_LABELS, CensusEntry, count_statuses, render_census


def run(args: argparse.Namespace) -> Outcome:
    options = arguments.compile_options(args)
    tasks = [
        CensusTask(
            path.relative_to(args.folder).as_posix(),
            str(path),
            path.stat().st_size,
            options,
            args.samples,
            args.profile,
            args.timeout,
            path.read_bytes() if args.scheduler else None,
        )
        for path in find_model_files(args.folder, "**/*")
    ]
    with open_executor(args.jobs or os.cpu_count() or 1, args.scheduler) as executor:
        entries = take_census(tasks, executor)
    board = options.get("board", "host")
    if args.output:
        write_file(args.output, render_census(entries, args.folder, board).encode())
    differing = [entry.file for entry in entries if entry.status == "differs"]
    error = None
    if differing:
        what = f"{len(differing)} models differ from their references, first {differing[0]}."
        hint = "verify --find-first-divergence names the first differing operator of a model."
        error = MismatchError(what, where=args.folder, hint=hint)
    data = {
        "folder": args.folder,
        "board": board,
        "counts": count_statuses(entries),
        "models": entries,
        "html": args.output,
    }
    return Outcome(data, format_summary(entries), error)


def format_summary(entries: Sequence[CensusEntry]) -> str:
    is_profiled = any(entry.count is not None for entry in entries)
    head = ["model", "result", "operators", "MACs", "workspace"]
    head += ["flash", "count", "default loops"] if is_profiled else []
    rows: list[Sequence[Cell]] = []
    for entry in entries:
        row: list[Cell] = [entry.file, STATUS_LABELS[entry.status], entry.operators, entry.macs]
        row.append(entry.workspace_bytes)
        if is_profiled:
            share = entry.default_loops
            row += [entry.model_flash_bytes, entry.count]
            row.append(None if share is None else f"{100 * share:.1f} %")
        rows.append(row)
    counts = [f"{n} {STATUS_LABELS[name]}" for name, n in count_statuses(entries).items()]
    reasons = [f"{entry.file}: {entry.reason}" for entry in entries if not entry.passed]
    table = format_table(head, rows)
    return "\n\n".join([table, "\n".join(reasons), f"{len(entries)} models: {', '.join(counts)}."])
