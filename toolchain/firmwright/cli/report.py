"""`firmwright report`: build and measure a model, and write an HTML report."""

import argparse
import os
from dataclasses import replace

from firmwright.base.errors import MismatchError, UsageError
from firmwright.base.source_date import output_date
from firmwright.cli import arguments
from firmwright.cli.evaluate import evaluate_from_args, shown_command
from firmwright.cli.session_arguments import is_absent, make_session_opener
from firmwright.cli.text_table import Cell, format_pairs
from firmwright.cli.verb import Outcome
from firmwright.flows.measure.build_report import build_report, read_report
from firmwright.flows.model.model import write_file
from firmwright.flows.predict.program_front import find_program_front
from firmwright.flows.predict.remedies import compile_or_advise
from firmwright.flows.verify.output_check import (
    SAMPLES,
    check_generated_samples,
    checked_by_evaluation,
)
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
    opener = make_session_opener(args)
    report = build_report(
        compiled,
        open_with=opener,
        count_instructions=args.count_instructions or is_absent(args, compiled.board),
        compiler=args.compiler,
        tradeoffs=not args.no_tradeoffs,
        partition=choice.partition,
    )
    if args.pareto:
        front = find_program_front(compiled, args.model, report.tradeoffs)
        report = replace(report, front=front)
    command, date = shown_command(args.words), output_date(os.environ)
    if args.data:
        evaluation = evaluate_from_args(args, compiled)
        check = checked_by_evaluation(compiled, evaluation, command, date)
        report = replace(report, evaluation=evaluation, verification=check)
    if args.verify:
        samples = args.samples or SAMPLES
        check = check_generated_samples(
            compiled, command, date, samples=samples, open_with=opener
        )
        report = replace(report, verification=check)
    if args.output:
        write_file(args.output, render_page(report, baseline).encode())
    data: dict[str, object] = {**report.as_json(), "html": args.output}
    error = _find_error(report) if args.verify else None
    return Outcome(data, format_summary(report, args.output), error)


def _find_error(report: BuildReport) -> MismatchError | None:
    check = report.verification
    if check is None or check.passed:
        return None
    hint = "firmwright verify --find-first-divergence names the first operator."
    return MismatchError(f"{check.verdict}.", where=report.board, hint=hint)


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
    if report.axis:
        rows.append(("measured at", f"the largest size of {report.axis}"))
    if report.time is not None:
        rows.append(("time", str(report.time)))
    check = report.verification
    rows.append(("outputs", "not verified" if check is None else check.verdict))
    if report.parallel is not None:
        run = report.parallel
        length = f"{run.makespan:,} {run.unit}"
        rows.append(("in parallel", f"{length}, {report.parallel_note}"))
    for device, cycles, source in report.estimates:
        rows.append((f"on {device}", f"{cycles:,} cycles, as {source} estimates"))
    if output:
        rows.append(("page", output))
    lines = [format_pairs(rows)]
    lines += [f"{finding.what} Try: {finding.hint}" for finding in report.findings]
    return "\n\n".join(lines)
