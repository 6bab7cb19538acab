"""`firmwright mlperf`: the MLPerf Tiny benchmark, from our side or for its own runner."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from firmwright.base.errors import UsageError
from firmwright.cli.base import (
    Outcome,
    add_compile_options,
    add_model,
    compiled_of,
    count_of,
    seconds_of,
    seed_of,
)
from firmwright.cli.table import Cell, facts
from firmwright.flows.mlperf import Score, for_benchmark, on_terminal, read_dataset, score
from firmwright.package.mlperf import TASKS, task_of
from firmwright.pipeline import Compiled

NAME = "mlperf"
HELP = "run the MLPerf Tiny benchmark on a board"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--dataset", metavar="DIR", help="samples, and y_labels.csv")
    parser.add_argument(
        "--samples", metavar="N", type=count_of, help="the first N of the data set (all)"
    )
    parser.add_argument(
        "--iterations", metavar="N", type=count_of, default=10, help="timed inferences (10)"
    )
    parser.add_argument(
        "--warmups", metavar="N", type=seed_of, default=10, help="inferences before those (10)"
    )
    parser.add_argument(
        "--task",
        choices=[task.name for task in TASKS],
        default="",
        help="which task the model is for (the one whose sizes it has)",
    )
    parser.add_argument(
        "--serve",
        action="store_true",
        help="start the firmware behind a pseudo terminal, for the benchmark's own runner",
    )
    parser.add_argument("--port", metavar="URL", default="", help="of a board that has it flashed")
    parser.add_argument(
        "--timeout", metavar="S", type=seconds_of, default=300.0, help="for one command (300)"
    )
    add_compile_options(parser)


def run(args: argparse.Namespace) -> Outcome:
    if bool(args.dataset) == args.serve:
        raise UsageError(
            "--dataset DIR runs the benchmark, --serve waits for its runner: one of them."
        )
    compiled = for_benchmark(compiled_of(args), args.task)
    if args.serve:
        return _serve(compiled)
    task = task_of(compiled.module.io, args.task)
    found = score(
        compiled,
        read_dataset(args.dataset, task, args.samples),
        port=args.port,
        timeout_s=args.timeout,
        iterations=args.iterations,
        warmups=args.warmups,
    )
    return Outcome(describe(found, compiled), summary(found, compiled))


def _serve(compiled: Compiled) -> Outcome:
    with on_terminal(compiled) as terminal:
        print(f"firmwright: the firmware answers at {terminal.name}; Ctrl-C ends it.",
              file=sys.stderr, flush=True)  # fmt: skip
        try:
            terminal.wait()
        except KeyboardInterrupt:
            print(file=sys.stderr)
    return Outcome({"board": compiled.board.name}, "")


def describe(found: Score, compiled: Compiled) -> dict[str, Any]:
    return {
        "model": compiled.module.name,
        "board": compiled.board.name,
        "task": found.task,
        "samples": found.samples,
        "top1": found.top1,
        "auc": found.auc,
        "inferences_per_second": found.per_second,
        "microseconds": found.microseconds,
        "results": found.results,
    }


def summary(found: Score, compiled: Compiled) -> str:
    rows: list[tuple[str, Cell]] = [
        ("model", compiled.module.name),
        ("board", compiled.board.name),
        ("task", f"{found.task} ({found.name} answers)"),
        ("samples", found.samples),
    ]
    if found.top1 is not None:
        rows.append(("top-1", f"{100 * found.top1:.1f} %"))
    if found.auc is not None:
        rows.append(("area under the curve", f"{found.auc:.3f}"))
    rows.append(("one inference", f"{found.microseconds:,.1f} us"))
    rows.append(("inferences per second", f"{found.per_second:,.2f}"))
    if compiled.board.run.kind == "qemu":
        rows.append(("time", "the emulator's: 1,000 instructions are 1 us"))
    return facts(rows)
