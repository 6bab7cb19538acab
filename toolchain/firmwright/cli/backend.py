"""`firmwright backend test`: a backend's patterns, bit for bit against the core alone."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from firmwright.base.errors import MismatchError
from firmwright.cli.session_options import add_session_options, make_session_opener
from firmwright.cli.shared_options import (
    Outcome,
    add_board_options,
    positive_int,
)
from firmwright.cli.text_table import Cell, format_table
from firmwright.flows.backend_conformance import BackendTestResult, PatternResult, run_backend_test
from firmwright.pipeline import NUMERICS

NAME = "backend"
HELP = "test a backend on the cases of its operators"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["test"], help="run every pattern over its grid")
    parser.add_argument("target", metavar="NAME", help="the backend, e.g. 'npu1 -columns=64'")
    parser.add_argument(
        "--samples", metavar="N", type=positive_int, default=4, help="for each case (4)"
    )
    parser.add_argument("--numerics", choices=NUMERICS, default="litert", help="whose (litert)")
    add_board_options(parser)
    add_session_options(parser)


def run(args: argparse.Namespace) -> Outcome:
    board = args.board or "host"
    found = run_backend_test(
        args.target,
        board,
        sample_count=args.samples,
        open_with=make_session_opener(args),
        numerics=args.numerics,
    )
    wrong = [case for entry in found.entries for case, _ in entry.differing]
    error = None
    if wrong:
        shown = ", ".join(wrong[:8]) + (", ..." if len(wrong) > 8 else "")
        error = MismatchError(f"{len(wrong)} cases differ: {shown}.", where=found.board)
    return Outcome(_data(found), _text(found), error)


def _data(found: BackendTestResult) -> dict[str, object]:
    return {
        "target": found.target,
        "board": found.board,
        "samples": found.samples,
        "patterns": [_entry(entry) for entry in found.entries],
    }


def _entry(entry: PatternResult) -> dict[str, object]:
    return {
        "name": entry.name,
        "cases": entry.cases,
        "taken": list(entry.taken),
        "differing": [
            {"case": case, "expected": first.expected, "actual": first.actual}
            for case, first in entry.differing
        ],
    }


def _text(found: BackendTestResult) -> str:
    rows: list[Sequence[Cell]] = [
        [entry.name, entry.cases, len(entry.taken), len(entry.differing) or None]
        for entry in found.entries
    ]
    text = format_table(["pattern", "cases", "taken", "differ"], rows)
    return f"{text}\n\n{found.samples} samples each on {found.board}, against the core alone."
