"""`firmwright selftest`: run the operators' conformance cases on a board."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from firmwright.base.errors import MismatchError
from firmwright.cli import arguments
from firmwright.cli.text_table import Cell, format_table
from firmwright.cli.verb import REPEATABLE, Outcome, add_options
from firmwright.flows.conformance_matrix import DTYPES, build_matrix
from firmwright.flows.conformance_matrix import ConformanceCell as Measured
from firmwright.flows.selftest import SelfTestResult, selftest

NAME = "selftest"
HELP = "run the operators' conformance cases on a board"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(
        parser,
        """
        --op OP  only this operator (repeatable)
        --samples N  samples for each case (default: 4)
        --one-each  run one case of each operator, chosen by the board
        --matrix  print a table of operators by element types
        """,
        op=REPEATABLE,
        samples={"type": int, "default": 4},
    )
    arguments.add_compile_options(parser)
    arguments.add_session_options(parser)


def run(args: argparse.Namespace) -> Outcome:
    options = arguments.compile_options(args)
    board = options.pop("board", "host")
    result = selftest(
        board,
        ops=args.op,
        sample_count=args.samples,
        one_each=args.one_each,
        open_with=arguments.make_session_opener(args),
        **options,
    )
    data = {
        "board": result.board,
        "numerics": result.numerics,
        "samples": result.samples,
        "images": result.images,
        "cases": len(result.results),
        "passed": len(result.results) - len(result.failed),
        "failed": [
            {
                "op": case.op,
                "case": case.case,
                "expected": case.first.expected,
                "actual": case.first.actual,
            }
            for case in result.failed
            if case.first is not None
        ],
        "skipped": [{"op": op, "case": case} for op, case in result.skipped],
    }
    if args.matrix:
        data["matrix"] = [asdict(cell) for cell in build_matrix(result)]
    error = None
    if result.failed:
        names = ", ".join(f"{case.op} {case.case}" for case in result.failed[:8])
        more = ", ..." if len(result.failed) > 8 else ""
        error = MismatchError(
            f"{len(result.failed)} of {len(result.results)} cases differ: {names}{more}.",
            where=result.board,
        )
    text = format_summary(result)
    return Outcome(data, f"{format_matrix(result)}\n\n{text}" if args.matrix else text, error)


def format_matrix(test_result: SelfTestResult) -> str:
    cells = {(cell.operator, cell.dtype): cell for cell in build_matrix(test_result)}
    rows: list[list[Cell]] = [
        [name, *(_format_cell(cells.get((name, kind))) for kind in DTYPES)]
        for name in dict.fromkeys(name for name, _ in cells)
    ]
    line = "passed/cases; yes: supported, without a case of its own; no: only a runtime takes it."
    return f"{format_table(['TFLite', *DTYPES], rows)}\n\n{line}"


def _format_cell(cell: Measured | None) -> str:
    if cell is None:
        return ""
    words = {"untested": "yes", "unsupported": "no"}
    return words.get(cell.status, f"{cell.passed}/{cell.cases}")


def format_summary(test_result: SelfTestResult) -> str:
    ops = sorted({result.op for result in test_result.results})
    rows: list[list[Cell]] = []
    for op in ops:
        mine = [result for result in test_result.results if result.op == op]
        failed = sum(not result.passed for result in mine)
        rows.append([op, len(mine), failed or None])
    line = (
        f"{len(test_result.results)} cases in {test_result.images} firmwares on "
        f"{test_result.board}, "
        f"{test_result.samples} samples each."
    )
    if test_result.skipped:
        line += f" {len(test_result.skipped)} cases are too large for this board and did not run."
    return f"{format_table(['operator', 'cases', 'differ'], rows)}\n\n{line}"
