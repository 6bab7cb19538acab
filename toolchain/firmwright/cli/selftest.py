"""`firmwright selftest`: run the operators' conformance cases on a board."""

import argparse
from collections import Counter

from firmwright.base.errors import MismatchError
from firmwright.cli import arguments
from firmwright.cli.session_arguments import make_session_opener
from firmwright.cli.text_table import Cell, format_table
from firmwright.cli.verb import Outcome
from firmwright.flows.model.given_options import GivenOptions
from firmwright.flows.verify import operator_conformance


def run(args: argparse.Namespace) -> Outcome:
    options = arguments.compile_options(args)
    board = options.pop("board", "host")
    given: GivenOptions = options
    result = operator_conformance.run_operator_test(
        board,
        ops=args.op,
        sample_count=args.samples,
        one_each=args.one_each,
        open_with=make_session_opener(args),
        **given,
    )
    failed: list[dict[str, object]] = []
    for case in result.failed:
        if case.first is not None:
            found = {"expected": case.first.expected, "actual": case.first.actual}
            failed.append({"op": case.op, "case": case.case, **found})
    data: dict[str, object] = {
        "board": result.board,
        "numerics": result.numerics,
        "samples": result.samples,
        "images": result.images,
        "cases": len(result.results),
        "passed": len(result.results) - len(result.failed),
        "failed": failed,
        "skipped": [{"op": op, "case": case} for op, case in result.skipped],
    }
    if args.matrix:
        data["matrix"] = operator_conformance.build_matrix(result)
    error = None
    if result.failed:
        names = ", ".join(f"{case.op} {case.case}" for case in result.failed[:8])
        more = ", ..." if len(result.failed) > 8 else ""
        error = MismatchError(
            f"{len(result.failed)} of {len(result.results)} cases differ: "
            f"{names}{more}.",
            where=result.board,
        )
    text = format_summary(result)
    if args.matrix:
        text = f"{format_matrix(result)}\n\n{text}"
    return Outcome(data, text, error)


def format_matrix(test_result: operator_conformance.OperatorTestResult) -> str:
    matrix = operator_conformance.build_matrix(test_result)
    cells = {(cell.operator, cell.dtype): cell for cell in matrix}
    rows: list[list[Cell]] = []
    for name in dict.fromkeys(cell.operator for cell in matrix):
        row: list[Cell] = [name]
        for kind in operator_conformance.DTYPES:
            row.append(_format_cell(cells.get((name, kind))))
        rows.append(row)
    line = (
        "passed/cases; yes: supported, without a case of its own; no: only a runtime "
        "takes it."
    )
    return f"{format_table(['TFLite', *operator_conformance.DTYPES], rows)}\n\n{line}"


def _format_cell(cell: operator_conformance.ConformanceCell | None) -> str:
    if cell is None:
        return ""
    words = {"untested": "yes", "unsupported": "no"}
    return words.get(cell.status, f"{cell.passed}/{cell.cases}")


def format_summary(test_result: operator_conformance.OperatorTestResult) -> str:
    cases = Counter(result.op for result in test_result.results)
    failed = Counter(result.op for result in test_result.failed)
    rows = [(op, cases[op], failed[op] or None) for op in sorted(cases)]
    images = f"{len(test_result.results)} cases in {test_result.images} firmware images"
    line = f"{images} on {test_result.board}, {test_result.samples} samples each."
    if test_result.skipped:
        line += (
            f" {len(test_result.skipped)} cases are too large for this board and did "
            "not run."
        )
    return f"{format_table(['operator', 'cases', 'differ'], rows)}\n\n{line}"
