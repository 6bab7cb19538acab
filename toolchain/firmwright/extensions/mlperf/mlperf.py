"""`firmwright mlperf`: run the MLPerf Tiny benchmark, or serve its own runner."""

import argparse
import sys

from firmwright.base.errors import UsageError
from firmwright.cli import arguments
from firmwright.cli.text_table import Cell, format_pairs
from firmwright.cli.verb import Outcome
from firmwright.extensions.mlperf import benchmark
from firmwright.extensions.mlperf.firmware import find_task
from firmwright.pipeline import Compilation


def run(args: argparse.Namespace) -> Outcome:
    if bool(args.dataset) == args.serve:
        hint = "--dataset DIR runs the benchmark, --serve waits for its runner."
        raise UsageError("exactly one of --dataset and --serve is needed.", hint=hint)
    compiled = benchmark.with_benchmark_firmware(
        arguments.compile_from_args(args),
        args.task,
        clock_hz=args.clock,
    )
    if args.serve:
        return _serve(compiled)
    task = find_task(compiled.module.io, args.task)
    samples = benchmark.read_dataset(args.dataset, task, args.samples)
    score = benchmark.run_benchmark(
        compiled,
        samples,
        port=args.port,
        timeout_s=args.timeout,
        iterations=args.iterations,
        warmups=args.warmups,
    )
    return Outcome(score_to_json(score, compiled), format_summary(score, compiled))


def _serve(compiled: Compilation) -> Outcome:
    with benchmark.serve_on_pty(compiled) as terminal:
        where = f"the firmware answers at {terminal.name}"
        notice = f"firmwright: {where}; Ctrl-C ends it."
        print(notice, file=sys.stderr, flush=True)
        try:
            terminal.wait()
        except KeyboardInterrupt:
            print(file=sys.stderr)
    return Outcome({"board": compiled.board.name}, "")


def score_to_json(
    score: benchmark.BenchmarkScore, compiled: Compilation
) -> dict[str, object]:
    return {
        "model": compiled.module.name,
        "board": compiled.board.name,
        "task": score.task,
        "samples": score.samples,
        "top1": score.top1,
        "auc": score.auc,
        "microseconds": score.microseconds,
        "results": score.results,
        "inferences_per_second": score.per_second,
    }


def format_summary(score: benchmark.BenchmarkScore, compiled: Compilation) -> str:
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
        task = benchmark.task_of(compiled)
        clock_hz = task.clock_hz if task else 0
        rate = "1,000 instructions are 1 us"
        if clock_hz:
            rate = f"1 instruction per cycle at {clock_hz:,} Hz"
        rows.append(("time", f"the emulator's: {rate}"))
    return format_pairs(rows)
