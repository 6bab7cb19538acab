"""`firmwright selftest`: every operator's cases on a board."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from firmwright.base.errors import MismatchError
from firmwright.cli.session_options import add_session_options, make_session_opener
from firmwright.cli.shared_options import (
    Outcome,
    add_compile_options,
    compile_options,
)
from firmwright.cli.text_table import Cell, format_table
from firmwright.flows.conformance_matrix import DTYPES, build_matrix
from firmwright.flows.conformance_matrix import ConformanceCell as Measured
from firmwright.flows.selftest import SelfTestResult, selftest

NAME = "selftest"
HELP = "run every operator's conformance cases on a board"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--op", metavar="OP", action="append", default=[], help="only this one")
    parser.add_argument("--samples", metavar="N", type=int, default=4, help="for each case (4)")
    parser.add_argument(
        "--one-each", action="store_true", help="one case of each operator, drawn by the board"
    )
    parser.add_argument(
        "--matrix",
        action="store_true",
        help="print operators by element types",
    )
    add_compile_options(parser)
    add_session_options(parser)


def run(args: argparse.Namespace) -> Outcome:
    given = compile_options(args)
    board = given.pop("board", "host")
    found = selftest(
        board,
        ops=args.op,
        sample_count=args.samples,
        one_each=args.one_each,
        open_with=make_session_opener(args),
        **given,
    )
    data = {
        "board": found.board,
        "numerics": found.numerics,
        "samples": found.samples,
        "images": found.images,
        "cases": len(found.results),
        "passed": len(found.results) - len(found.failed),
        "failed": [
            {
                "op": result.op,
                "case": result.case,
                "expected": result.first.expected,
                "actual": result.first.actual,
            }
            for result in found.failed
            if result.first is not None
        ],
        "skipped": [{"op": op, "case": case} for op, case in found.skipped],
    }
    if args.matrix:
        data["matrix"] = [asdict(cell) for cell in build_matrix(found)]
    error = None
    if found.failed:
        names = ", ".join(f"{result.op} {result.case}" for result in found.failed[:8])
        more = ", ..." if len(found.failed) > 8 else ""
        error = MismatchError(
            f"{len(found.failed)} of {len(found.results)} cases differ: {names}{more}.",
            where=found.board,
        )
    text = format_summary(found)
    return Outcome(data, f"{format_matrix(found)}\n\n{text}" if args.matrix else text, error)


def format_matrix(found: SelfTestResult) -> str:
    """TFLite's operators by element types."""
    cells = {(cell.operator, cell.dtype): cell for cell in build_matrix(found)}
    rows: list[list[Cell]] = [
        [name, *(_state(cells.get((name, kind))) for kind in DTYPES)]
        for name in dict.fromkeys(name for name, _ in cells)
    ]
    line = "passed/cases; yes: supported, without a case of its own; no: only a runtime takes it."
    return f"{format_table(['TFLite', *DTYPES], rows)}\n\n{line}"


def _state(cell: Measured | None) -> str:
    if cell is None:
        return ""
    words = {"untested": "yes", "unsupported": "no"}
    return words.get(cell.status, f"{cell.passed}/{cell.cases}")


def format_summary(found: SelfTestResult) -> str:
    ops = sorted({result.op for result in found.results})
    rows: list[list[Cell]] = []
    for op in ops:
        mine = [result for result in found.results if result.op == op]
        failed = sum(not result.passed for result in mine)
        rows.append([op, len(mine), failed or None])
    line = (
        f"{len(found.results)} cases in {found.images} firmwares on {found.board}, "
        f"{found.samples} samples each."
    )
    if found.skipped:
        line += f" {len(found.skipped)} cases are too large for this board and did not run."
    return f"{format_table(['operator', 'cases', 'differ'], rows)}\n\n{line}"
