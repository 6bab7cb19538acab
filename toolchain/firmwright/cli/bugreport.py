"""`firmwright bugreport`: pack the facts for a bug report into one archive."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from firmwright.cli.shared_options import (
    add_compile_options,
    add_model_options,
    prepare_compilation,
)
from firmwright.cli.text_table import Cell, format_table
from firmwright.cli.verb import Outcome
from firmwright.flows.bug_report import BugReportRequest, make_bug_report
from firmwright.flows.doctor import check_tools
from firmwright.flows.model import Model, write_file

NAME = "bugreport"
HELP = "pack versions, options and module texts for a bug report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_options(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default="bugreport.zip",
        help="output file (default: bugreport.zip)",
    )
    parser.add_argument(
        "--with-weights",
        action="store_true",
        help="include the model file and all constants instead of their shapes and hashes",
    )
    add_compile_options(parser)


def run(args: argparse.Namespace) -> Outcome:
    def read() -> tuple[Model, Mapping[str, Any]]:
        return prepare_compilation(args)

    request = BugReportRequest(
        read, sys.argv[1:], check_tools(), args.with_weights, str(Path.home())
    )
    report = make_bug_report(request)
    write_file(args.output, report.data)
    rows: list[list[Cell]] = [[path, size] for path, size in report.files.items()]
    weights = "with" if args.with_weights else "without"
    texts = [
        f"{args.output}: {len(report.files)} files, {len(report.data):,} bytes, {weights} weights.",
        format_table(["file", "bytes"], rows),
        f"Outcome of the compilation: {report.outcome}",
    ]
    data = {
        "file": args.output,
        "bytes": len(report.data),
        "files": dict(report.files),
        "with_weights": args.with_weights,
        "outcome": report.outcome,
    }
    return Outcome(data, "\n\n".join(texts))
