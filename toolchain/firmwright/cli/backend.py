"""`firmwright backend test`: compare patterns with the core's kernels bit for bit."""

import argparse
import textwrap
from collections.abc import Sequence

from firmwright.base.errors import MismatchError
from firmwright.cli.session_arguments import make_session_opener
from firmwright.cli.text_table import Cell, format_table
from firmwright.cli.verb import Outcome
from firmwright.flows.verify.backend_conformance import (
    BackendTestResult,
    CaseDifference,
    run_backend_test,
)


def run(args: argparse.Namespace) -> Outcome:
    board = args.board or "host"
    result = run_backend_test(
        args.target,
        board,
        sample_count=args.samples,
        open_with=make_session_opener(args),
        numerics=args.numerics,
    )
    wrong: set[str] = set()
    for entry in result.entries:
        wrong.update(case for case, _ in entry.differing)
    error = None
    if wrong:
        count = f"{len(wrong)} cases differ" if len(wrong) > 1 else "1 case differs"
        error = MismatchError(f"{count}.", where=f"{result.target} on {result.board}")
    warnings: list[str] = []
    for entry in result.entries:
        if 2 * len(entry.matched) < len(entry.outcomes):
            warnings.append(
                f"{entry.name} was tested on {len(entry.matched)} of the "
                f"{len(entry.outcomes)} cases of its operators only."
            )
    return Outcome(_to_json(result), _format_result(result), error, tuple(warnings))


def _difference_to_json(case: str, difference: CaseDifference) -> dict[str, object]:
    return {
        "case": case,
        "check": difference.check,
        "sample": difference.first.sample,
        "tensor": difference.first.tensor,
        "index": difference.first.index,
        "expected": difference.first.expected,
        "actual": difference.first.actual,
    }


def _to_json(result: BackendTestResult) -> dict[str, object]:
    patterns: list[dict[str, object]] = []
    for entry in result.entries:
        differing = [_difference_to_json(case, item) for case, item in entry.differing]
        row: dict[str, object] = {
            "name": entry.name,
            "rejected": entry.rejected,
            "cases": len(entry.outcomes),
            "taken": entry.matched,
            "differing": differing,
        }
        patterns.append(row)
    return {
        "target": result.target,
        "board": result.board,
        "samples": result.samples,
        "patterns": patterns,
    }


def _format_result(result: BackendTestResult) -> str:
    rows: list[Sequence[Cell]] = []
    wrong: list[Sequence[Cell]] = []
    compared = "outputs and numpy meaning" if result.has_numpy_meaning else "outputs"
    texts = [
        f"{result.samples} samples for each case on {result.board}: {compared} "
        "compared with the core alone, guard bytes around all buffers checked."
    ]
    for entry in result.entries:
        differing = len({case for case, _ in entry.differing})
        counts = (len(entry.outcomes), len(entry.matched), differing or None)
        rows.append([entry.name, *counts])
        names: dict[str, list[str]] = {}
        for case in entry.rejected:
            op, name = case.split(" ", 1)
            names.setdefault(op, []).append(name)
        for op, cases in names.items():
            texts.append(f"{entry.name} rejects {op}: {', '.join(cases)}.")
        for case, item in entry.differing:
            first = item.first
            element = f"{first.tensor}[{', '.join(map(str, first.index))}]"
            place = (case, item.check, first.sample, element)
            wrong.append([*place, first.expected, first.actual])
    parts = [textwrap.fill(text, 80, subsequent_indent="  ") for text in texts]
    if wrong:
        head = ["case", "check", "sample", "element", "expected", "got"]
        parts.append(format_table(head, wrong))
    patterns = format_table(["pattern", "cases", "matched", "differ"], rows)
    return "\n\n".join([patterns, *parts])
