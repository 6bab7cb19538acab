"""`firmwright backend test`: compare a backend's patterns bit for bit with the core's kernels."""

import argparse
from collections.abc import Sequence

from firmwright.base.errors import MismatchError
from firmwright.cli import arguments
from firmwright.cli.option_values import positive_int
from firmwright.cli.text_table import Cell, format_table
from firmwright.cli.verb import Outcome, add_options, fields_of
from firmwright.flows.backend_conformance import BackendTestResult, run_backend_test
from firmwright.pipeline import NUMERICS

NAME = "backend"
HELP = "test a backend on the conformance cases of its operators"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", choices=["test"], help="run every pattern on its conformance cases"
    )
    parser.add_argument("target", metavar="NAME", help="the backend, e.g. 'npu1 -columns=64'")
    add_options(
        parser,
        """
        --samples N  samples for each case (default: 4)
        --numerics  rounding profile (default: litert)
        """,
        samples={"type": positive_int, "default": 4},
        numerics={"choices": NUMERICS, "default": "litert"},
    )
    arguments.add_cmsis_nn_option(parser)
    arguments.add_board_options(parser)
    arguments.add_session_options(parser)


def run(args: argparse.Namespace) -> Outcome:
    board = args.board or "host"
    result = run_backend_test(
        args.target,
        board,
        sample_count=args.samples,
        open_with=arguments.make_session_opener(args),
        numerics=args.numerics,
    )
    wrong = [case for entry in result.entries for case, _ in entry.differing]
    error = None
    if wrong:
        shown = ", ".join(wrong[:8]) + (", ..." if len(wrong) > 8 else "")
        error = MismatchError(
            f"{len(wrong)} cases differ: {shown}.",
            where=result.board,
            hint="run the failing cases with --json for the first differing values.",
        )
    return Outcome(_to_json(result), _format_result(result), error)


def _to_json(result: BackendTestResult) -> dict[str, object]:
    patterns = []
    for entry in result.entries:
        differing = [
            {"case": case, **fields_of(first, "expected actual")} for case, first in entry.differing
        ]
        data = {"name": entry.name, "cases": entry.cases, "taken": entry.matched}
        patterns.append({**data, "differing": differing})
    return {**fields_of(result, "target board samples"), "patterns": patterns}


def _format_result(result: BackendTestResult) -> str:
    rows: list[Sequence[Cell]] = [
        [entry.name, entry.cases, len(entry.matched), len(entry.differing) or None]
        for entry in result.entries
    ]
    text = format_table(["pattern", "cases", "matched", "differ"], rows)
    compared = f"{result.samples} samples for each case on {result.board}"
    return f"{text}\n\n{compared}, compared with the core alone."
