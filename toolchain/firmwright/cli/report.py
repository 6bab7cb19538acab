"""`firmwright report`: build and measure a model, and write an HTML report."""

import argparse
from dataclasses import replace

from firmwright.base.errors import UsageError
from firmwright.cli import arguments
from firmwright.cli.evaluate import evaluate_from_args
from firmwright.cli.session_arguments import make_session_opener
from firmwright.cli.text_table import Cell, format_pairs
from firmwright.cli.verb import Outcome
from firmwright.flows.measure.build_report import build_report, read_report
from firmwright.flows.model.memory_advice import compile_or_advise
from firmwright.flows.model.model import write_file
from firmwright.report.html_page import render_page
from firmwright.report.model import BuildReport, occupied_bytes_by_time, peak_time


def run(args: argparse.Namespace) -> Outcome:
    if args.in_process:
        raise UsageError(
            "a library in this process has no counters.", hint="omit --in-process."
        )
    baseline = read_report(args.baseline) if args.baseline else None
    choice = arguments.choose_partition(args)
    compiled = compile_or_advise(choice.model, choice.options)
    report = build_report(
        compiled,
        open_with=make_session_opener(args),
        count_instructions=args.count_instructions,
        compiler=args.compiler,
        tradeoffs=not args.no_tradeoffs,
        partition=choice.partition,
    )
    if args.data:
        report = replace(report, evaluation=evaluate_from_args(args, compiled))
    if args.output:
        write_file(args.output, render_page(report, baseline).encode())
    data: dict[str, object] = {**report.as_json(), "html": args.output}
    return Outcome(data, format_summary(report, args.output))


def format_summary(report: BuildReport, output: str | None) -> str:
    peak = peak_time(report)
    occupied = occupied_bytes_by_time(report)
    model_flash = f"{report.model_flash_bytes:,} of the model"
    most = f"{occupied[peak]:,} bytes, at call {peak}" if occupied else "nothing"
    rows: list[tuple[str, Cell]] = [
        ("model", report.model),
        ("board", report.board),
        ("workspace", f"{report.workspace_bytes:,} bytes"),
        ("peak occupancy", most),
        ("flash", f"{report.flash_bytes:,} bytes, including {model_flash}"),
        (f"{report.unit} per run", report.total),
    ]
    if report.parallel is not None:
        run = report.parallel
        rows.append(("in parallel", f"{run.makespan:,} {run.unit}, {run}"))
    for device, cycles, source in report.estimates:
        rows.append((f"on {device}", f"{cycles:,} cycles, as {source} estimates"))
    if output:
        rows.append(("page", output))
    lines = [format_pairs(rows)]
    lines += [f"{finding.what} Try: {finding.hint}" for finding in report.findings]
    return "\n\n".join(lines)
