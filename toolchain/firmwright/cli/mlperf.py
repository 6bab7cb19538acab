"""`firmwright mlperf`: the MLPerf Tiny benchmark, from our side or for its own runner."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from firmwright.base.errors import UsageError
from firmwright.cli.shared_options import (
    Outcome,
    add_compile_options,
    add_model_options,
    compile_from_args,
    non_negative_int,
    positive_int,
    positive_seconds,
)
from firmwright.cli.text_table import Cell, format_pairs
from firmwright.flows.mlperf import (
    BenchmarkScore,
    read_dataset,
    run_benchmark,
    serve_on_pty,
    with_benchmark_firmware,
)
from firmwright.package.mlperf import TASKS, find_task
from firmwright.pipeline import Compilation

NAME = "mlperf"
HELP = "run the MLPerf Tiny benchmark on a board"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_options(parser)
    parser.add_argument("--dataset", metavar="DIR", help="samples, and y_labels.csv")
    parser.add_argument(
        "--samples", metavar="N", type=positive_int, help="the first N of the data set (all)"
    )
    parser.add_argument(
        "--iterations", metavar="N", type=positive_int, default=10, help="timed inferences (10)"
    )
    parser.add_argument(
        "--warmups",
        metavar="N",
        type=non_negative_int,
        default=10,
        help="inferences before those (10)",
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
        "--timeout", metavar="S", type=positive_seconds, default=300.0, help="for one command (300)"
    )
    add_compile_options(parser)


def run(args: argparse.Namespace) -> Outcome:
    if bool(args.dataset) == args.serve:
        raise UsageError(
            "--dataset DIR runs the benchmark, --serve waits for its runner: one of them."
        )
    compiled = with_benchmark_firmware(compile_from_args(args), args.task)
    if args.serve:
        return _serve(compiled)
    task = find_task(compiled.module.io, args.task)
    found = run_benchmark(
        compiled,
        read_dataset(args.dataset, task, args.samples),
        port=args.port,
        timeout_s=args.timeout,
        iterations=args.iterations,
        warmups=args.warmups,
    )
    return Outcome(score_to_json(found, compiled), format_summary(found, compiled))


def _serve(compiled: Compilation) -> Outcome:
    with serve_on_pty(compiled) as terminal:
        print(f"firmwright: the firmware answers at {terminal.name}; Ctrl-C ends it.",
              file=sys.stderr, flush=True)  # fmt: skip
        try:
            terminal.wait()
        except KeyboardInterrupt:
            print(file=sys.stderr)
    return Outcome({"board": compiled.board.name}, "")


def score_to_json(found: BenchmarkScore, compiled: Compilation) -> dict[str, Any]:
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


def format_summary(found: BenchmarkScore, compiled: Compilation) -> str:
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
    return format_pairs(rows)
