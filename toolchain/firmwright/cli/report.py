"""`firmwright report`: everything known about a build, as one HTML page."""

from __future__ import annotations

import argparse
from typing import Any

from firmwright.base.errors import UsageError
from firmwright.cli.base import (
    Outcome,
    add_compile_options,
    add_model,
    asked_of,
    compiled_of,
    given_options,
    model_of,
)
from firmwright.cli.running_options import add_device, add_exact, opener
from firmwright.cli.table import Cell, facts
from firmwright.flows.compiling import compile_for
from firmwright.flows.model import write_file
from firmwright.flows.reporting import read_report, report
from firmwright.partitioning.parts import Partition
from firmwright.pipeline import Compiled
from firmwright.report.facts import Report, by_time, peak_time
from firmwright.report.page import page
from firmwright.tune.partitions import COLLAGE, searched

NAME = "report"
HELP = "build and measure a model, and write one page about it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("-o", "--output", metavar="HTML", help="write the page here")
    parser.add_argument(
        "--against", metavar="REPORT", help="an earlier page or report --json, to compare with"
    )
    add_exact(parser)
    parser.add_argument(
        "--no-tradeoffs",
        dest="tradeoffs",
        action="store_false",
        help="do not look for programs with less RAM, which takes as long as compiling",
    )
    add_compile_options(parser)
    add_device(parser)


def run(args: argparse.Namespace) -> Outcome:
    if args.in_process:
        raise UsageError("a library in this process has no counters.", hint="no --in-process.")
    old = read_report(args.against) if args.against else None
    compiled, partition = _compiled(args)
    found = report(
        compiled,
        open_with=opener(args),
        exact=args.exact,
        compiler=args.compiler,
        tradeoffs=args.tradeoffs,
        partition=partition,
    )
    if args.output:
        write_file(args.output, page(found, old).encode())
    data: dict[str, Any] = {**found.as_json(), "html": args.output}
    return Outcome(data, summary(found, args.output))


def _compiled(args: argparse.Namespace) -> tuple[Compiled, Partition | None]:
    """What is to be reported on, and the search that said who runs what."""
    if args.partition != COLLAGE:
        return compiled_of(args), None
    options = given_options(args)
    found = searched(model_of(args), options, asked_of(args))
    return compile_for(found.model, **options), found.partition


def summary(found: Report, output: str | None) -> str:
    """The figures on top of the page, and what is worth a look."""
    peak = peak_time(found)
    used = by_time(found)
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
    lines = [facts(rows)]
    lines += [f"{finding.what} Try: {finding.hint}" for finding in found.findings]
    return "\n\n".join(lines)
