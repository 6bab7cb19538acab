"""`firmwright report`: everything known about a build, as one HTML page."""

from __future__ import annotations

import argparse
from typing import Any

from firmwright.base.errors import UsageError
from firmwright.cli.session_options import (
    add_count_instructions_option,
    add_session_options,
    make_session_opener,
)
from firmwright.cli.shared_options import (
    Outcome,
    add_compile_options,
    add_model_options,
    compile_from_args,
    compile_options,
    load_model_argument,
    partition_request,
)
from firmwright.cli.text_table import Cell, format_pairs
from firmwright.flows.build_report import build_report, read_report
from firmwright.flows.compilation import compile_for
from firmwright.flows.model import write_file
from firmwright.partitioning.partition_result import PartitionResult
from firmwright.pipeline import Compilation
from firmwright.report.html_page import render_page
from firmwright.report.model import BuildReport, occupied_bytes_by_time, peak_time
from firmwright.tune.partition_methods import COLLAGE, search_partition

NAME = "report"
HELP = "build and measure a model, and write one page about it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_options(parser)
    parser.add_argument("-o", "--output", metavar="HTML", help="write the page here")
    parser.add_argument(
        "--baseline", metavar="REPORT", help="an earlier page or report --json, to compare with"
    )
    add_count_instructions_option(parser)
    parser.add_argument(
        "--no-tradeoffs",
        dest="tradeoffs",
        action="store_false",
        help="do not look for programs with less RAM, which takes as long as compiling",
    )
    add_compile_options(parser)
    add_session_options(parser)


def run(args: argparse.Namespace) -> Outcome:
    if args.in_process:
        raise UsageError("a library in this process has no counters.", hint="no --in-process.")
    old = read_report(args.baseline) if args.baseline else None
    compiled, partition = _compiled(args)
    found = build_report(
        compiled,
        open_with=make_session_opener(args),
        exact=args.count_instructions,
        compiler=args.compiler,
        tradeoffs=args.tradeoffs,
        partition=partition,
    )
    if args.output:
        write_file(args.output, render_page(found, old).encode())
    data: dict[str, Any] = {**found.as_json(), "html": args.output}
    return Outcome(data, format_summary(found, args.output))


def _compiled(args: argparse.Namespace) -> tuple[Compilation, PartitionResult | None]:
    """What is to be reported on, and the search that said who runs what."""
    if args.partition != COLLAGE:
        return compile_from_args(args), None
    options = compile_options(args)
    found = search_partition(load_model_argument(args), options, partition_request(args))
    return compile_for(found.model, **options), found.partition


def format_summary(found: BuildReport, output: str | None) -> str:
    """The figures on top of the page, and what is worth a look."""
    peak = peak_time(found)
    used = occupied_bytes_by_time(found)
    rows: list[tuple[str, Cell]] = [
        ("model", found.model),
        ("board", found.board),
        ("workspace", f"{found.workspace_bytes:,} bytes"),
        ("most is occupied", f"{used[peak]:,} bytes, at call {peak}" if used else "nothing"),
        ("flash", f"{found.flash_bytes:,} bytes, of them {found.model_flash_bytes:,} the model's"),
        (f"{found.unit} per run", found.total),
    ]
    if output:
        rows.append(("page", output))
    lines = [format_pairs(rows)]
    lines += [f"{finding.what} Try: {finding.hint}" for finding in found.findings]
    return "\n\n".join(lines)
