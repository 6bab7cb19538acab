"""`firmwright mlperf`: run the MLPerf Tiny benchmark, or serve its own runner."""

import argparse
import sys
from typing import Any

from firmwright.base.errors import UsageError
from firmwright.cli import arguments
from firmwright.cli.option_values import non_negative_int, positive_int, positive_seconds
from firmwright.cli.text_table import Cell, format_pairs
from firmwright.cli.verb import Outcome, add_options, fields_of
from firmwright.flows import mlperf
from firmwright.package.mlperf import TASKS, find_task
from firmwright.pipeline import Compilation

NAME = "mlperf"
HELP = "run the MLPerf Tiny benchmark on a board"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_model_options(parser)
    add_options(
        parser,
        """
        --dataset DIR  folder with the samples and y_labels.csv
        --samples N  use the first N samples (default: all)
        --iterations N  timed inferences (default: 10)
        --warmups N  untimed inferences before them (default: 10)
        --task  the model's task (default: the task with its tensor sizes)
        --serve  run the firmware on a pseudo terminal for the benchmark's own runner
        --clock HZ  clock of an emulated board, for times of one instruction per cycle (default: the
            emulator's 1,000 instructions per microsecond)
        --port URL  serial port of a board with the firmware
        --timeout S  seconds for one command (default: 300)
        """,
        samples={"type": positive_int},
        iterations={"type": positive_int, "default": 10},
        warmups={"type": non_negative_int, "default": 10},
        task={"choices": [task.name for task in TASKS], "default": ""},
        clock={"type": positive_int, "default": 0},
        port={"default": ""},
        timeout={"type": positive_seconds, "default": 300.0},
    )
    arguments.add_compile_options(parser)


def run(args: argparse.Namespace) -> Outcome:
    if bool(args.dataset) == args.serve:
        raise UsageError(
            "exactly one of --dataset and --serve is needed.",
            hint="--dataset DIR runs the benchmark, --serve waits for its runner.",
        )
    compiled = mlperf.with_benchmark_firmware(
        arguments.compile_from_args(args), args.task, clock_hz=args.clock
    )
    if args.serve:
        return _serve(compiled)
    task = find_task(compiled.module.io, args.task)
    score = mlperf.run_benchmark(
        compiled,
        mlperf.read_dataset(args.dataset, task, args.samples),
        port=args.port,
        timeout_s=args.timeout,
        iterations=args.iterations,
        warmups=args.warmups,
    )
    return Outcome(score_to_json(score, compiled), format_summary(score, compiled))


def _serve(compiled: Compilation) -> Outcome:
    with mlperf.serve_on_pty(compiled) as terminal:
        print(f"firmwright: the firmware answers at {terminal.name}; Ctrl-C ends it.",
              file=sys.stderr, flush=True)  # fmt: skip
        try:
            terminal.wait()
        except KeyboardInterrupt:
            print(file=sys.stderr)
    return Outcome({"board": compiled.board.name}, "")


def score_to_json(score: mlperf.BenchmarkScore, compiled: Compilation) -> dict[str, Any]:
    return {
        "model": compiled.module.name,
        "board": compiled.board.name,
        **fields_of(score, "task samples top1 auc microseconds results"),
        "inferences_per_second": score.per_second,
    }


def format_summary(score: mlperf.BenchmarkScore, compiled: Compilation) -> str:
    rows: list[tuple[str, Cell]] = [
        ("model", compiled.module.name),
        ("board", compiled.board.name),
        ("task", f"{score.task} (firmware {score.name})"),
        ("samples", score.samples),
    ]
    if score.top1 is not None:
        rows.append(("top-1", f"{100 * score.top1:.1f} %"))
    if score.auc is not None:
        rows.append(("area under the curve", f"{score.auc:.3f}"))
    rows.append(("one inference", f"{score.microseconds:,.1f} us"))
    rows.append(("inferences per second", f"{score.per_second:,.2f}"))
    if compiled.board.run.kind == "qemu":
        clock_hz = compiled.task.clock_hz if compiled.task else 0
        rate = (
            f"1 instruction per cycle at {clock_hz:,} Hz"
            if clock_hz
            else "1,000 instructions are 1 us"
        )
        rows.append(("time", f"the emulator's: {rate}"))
    return format_pairs(rows)
