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
    run_backend_test,
)
from firmwright.flows.verify.chain_runs import AccessCheck, CaseDifference, Check
from firmwright.flows.verify.operand_checks import OperandFault
from firmwright.oracle.compare import Difference


def run(args: argparse.Namespace) -> Outcome:
    board = args.board or "host"
    result = run_backend_test(
        args.target,
        board,
        sample_count=args.samples,
        open_with=make_session_opener(args),
        numerics=args.numerics,
        is_external=bool(args.port),
        patterns=args.patterns,
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
        if not entry.matched:
            reasons = [*entry.reasons.values(), "its operators have no cases."]
            warnings.append(f"{entry.name} was not tested: {reasons[0]}")
        elif 2 * len(entry.matched) < len(entry.outcomes):
            warnings.append(
                f"{entry.name} was tested on {len(entry.matched)} of the "
                f"{len(entry.outcomes)} cases of its operators only."
            )
    return Outcome(_to_json(result), _format_result(result), error, tuple(warnings))


def _difference_to_json(case: str, difference: CaseDifference) -> dict[str, object]:
    found: dict[str, object] = {"case": case, "check": difference.check.value}
    if difference.pool:
        found["pool"] = difference.pool
    match difference.first:
        case Difference() as first:
            return {
                **found,
                "sample": first.sample,
                "tensor": first.tensor,
                "index": first.index,
                "expected": first.expected,
                "actual": first.actual,
            }
        case OperandFault(problem=problem, place=place):
            return {**found, "problem": problem, "place": place}


def _difference_row(case: str, difference: CaseDifference) -> list[Cell]:
    check = difference.check.value
    if difference.pool:
        check += f" in {difference.pool}"
    found: list[Cell]
    match difference.first:
        case Difference() as first:
            element = f"{first.tensor}[{', '.join(map(str, first.index))}]"
            found = [first.sample, element, first.expected, first.actual]
        case OperandFault(problem=problem, place=place):
            expected = (
                "its operands" if difference.check == Check.ACCESS else "defined C"
            )
            found = [None, place, expected, problem]
    return [case, check, *found]


def _to_json(result: BackendTestResult) -> dict[str, object]:
    patterns: list[dict[str, object]] = []
    for entry in result.entries:
        differing = [_difference_to_json(case, item) for case, item in entry.differing]
        row: dict[str, object] = {
            "name": entry.name,
            "rejected": entry.rejected,
            "cases": len(entry.outcomes),
            "taken": entry.matched,
            "variants": list(entry.variants),
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
    checked = "inputs and guard bytes around all buffers checked"
    match result.access_check:
        case AccessCheck.SANITIZERS:
            checked += ", all accesses and operations of the C checked by sanitizers"
        case AccessCheck.EMULATOR:
            checked += ", all accesses of the operators checked in the emulator"
    texts = [
        f"{result.samples} samples, twice, for each case on {result.board}: {compared} "
        f"compared with the core alone, {checked}."
    ]
    for entry in result.entries:
        differing = len({case for case, _ in entry.differing})
        tested = (len(entry.matched), len(entry.variants))
        counts = (len(entry.outcomes), *tested, differing or None)
        rows.append([entry.name, *counts])
        names: dict[str, list[str]] = {}
        for case in entry.rejected:
            op, name = case.split(" ", 1)
            names.setdefault(op, []).append(name)
        for op, cases in names.items():
            texts.append(f"{entry.name} rejects {op}: {', '.join(cases)}.")
        for case, item in entry.differing:
            wrong.append(_difference_row(case, item))
    parts = [textwrap.fill(text, 80, subsequent_indent="  ") for text in texts]
    if wrong:
        head = ["case", "check", "sample", "element or place", "expected", "got"]
        parts.append(format_table(head, wrong))
    patterns = format_table(["pattern", "cases", "matched", "variants", "differ"], rows)
    return "\n\n".join([patterns, *parts])
