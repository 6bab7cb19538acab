"""Finds possible problems in a report and suggests remedies."""

from collections.abc import Iterable, Iterator

from firmwright.base.grouping import group_pairs
from firmwright.base.text_sections import read_sections
from firmwright.report.model import BuildReport, OperatorReport, ReportFinding

FULL_POOL_RATIO = 0.9
"""A memory counts as nearly full if at least this ratio is used."""
FULL_STACK_RATIO = 0.75
"""The same for the reserve of the stack."""
MIN_SHARE = 0.02
"""Operators below this share of a run are ignored."""
MAX_PREDICTION_ERROR = 0.3
"""Larger relative errors of predictions are reported."""
MIN_PREDICTED_SHARE = 0.05
"""Predictions of operators below this share of a run are not compared."""
_MOVES = ("transpose", "quantize", "dequantize")
"""Operators that compute nothing, which another export of the model often avoids."""
_TEXT = read_sections(__file__, ".txt")


def find_issues(report: BuildReport) -> tuple[ReportFinding, ...]:
    """Return the findings of all rules, in the order of the rules."""
    rules = (
        _slow_paths,
        _rejections,
        _moves,
        _full_memories,
        _stack,
        _plan,
        _predictions,
    )
    findings: list[ReportFinding] = []
    for rule in rules:
        findings += rule(report)
    return tuple(findings)


def _finding(kind: str, /, **values: object) -> ReportFinding:
    """Return the finding with the text of `kind`, whose last line is the remedy."""
    *problem, remedy = _TEXT[kind].format(**values).splitlines()
    return ReportFinding(" ".join(problem), remedy)


def _share(report: BuildReport, operator: OperatorReport) -> float:
    """Return the part of a run that an operator takes, from 0 to 1."""
    return operator.count / max(report.total, 1)


def _slow_paths(report: BuildReport) -> Iterator[ReportFinding]:
    """Find operators without a schedule for the core, and floats of library calls."""
    slow: list[OperatorReport] = []
    for operator in report.operators:
        is_default = operator.schedule == "default"
        if is_default and _share(report, operator) >= MIN_SHARE:
            slow.append(operator)
    for label, operators in _by_kind(slow):
        shares = [_share(report, operator) for operator in operators]
        verb = "uses" if len(operators) == 1 else "use"
        yield _finding(
            "default_loops", label=label, verb=verb, percent=100 * sum(shares)
        )
    if report.library_floats:
        yield _finding("library_floats")


def _rejections(report: BuildReport) -> Iterator[ReportFinding]:
    for item in report.rejections:
        yield _finding("rejection", item=item)


def _by_kind(
    operators: Iterable[OperatorReport],
) -> Iterator[tuple[str, list[OperatorReport]]]:
    """Yield the operators of each kind with a label, such as "conv2d 3, 7"."""
    by_kind = group_pairs((item.kind, item) for item in operators)
    for kind, several in by_kind.items():
        numbers = ", ".join(str(operator.index) for operator in several)
        yield f"{kind} {numbers}", several


def _moves(report: BuildReport) -> Iterator[ReportFinding]:
    """Find operators that only move or convert data."""
    for kind in _MOVES:
        number = count = 0
        for operator in report.operators:
            if operator.kind == kind:
                number += 1
                count += operator.count
        if number:
            verb = "operator remains" if number == 1 else "operators remain"
            yield _finding(
                "moves",
                kind=kind,
                number=number,
                verb=verb,
                count=count,
                unit=report.unit,
                percent=100 * count / max(report.total, 1),
            )


def _full_memories(report: BuildReport) -> Iterator[ReportFinding]:
    """Find pools of the plan and regions of the image that are nearly full."""
    for pool in report.pools:
        yield from _full_memory("pool", pool.name, pool.used_bytes, pool.limit_bytes)
    for region in report.regions:
        yield from _full_memory(
            "region", region.name, region.used_bytes, region.size_bytes
        )


def _full_memory(
    kind: str, name: str, used_bytes: int, size_bytes: int | None
) -> Iterator[ReportFinding]:
    if size_bytes and used_bytes >= FULL_POOL_RATIO * size_bytes:
        yield _finding(
            kind,
            name=name,
            percent=100 * used_bytes / size_bytes,
            used_bytes=used_bytes,
            size_bytes=size_bytes,
        )


def _stack(report: BuildReport) -> Iterator[ReportFinding]:
    stack = report.stack
    full_bytes = FULL_STACK_RATIO * stack.reserve_bytes
    if stack.reserve_bytes and stack.firmware_bytes >= full_bytes:
        yield _finding("stack", stack=stack)


def _plan(report: BuildReport) -> Iterator[ReportFinding]:
    gap_bytes = report.workspace_bytes - report.lower_bound_bytes
    if gap_bytes > 0:
        yield _finding("plan", gap_bytes=gap_bytes)


def _predictions(report: BuildReport) -> Iterator[ReportFinding]:
    """Find wrong predictions of counted instructions; other units are not predicted."""
    if report.unit != "instructions":
        return
    wrong: list[OperatorReport] = []
    for operator in report.operators:
        if not operator.predicted or _share(report, operator) < MIN_PREDICTED_SHARE:
            continue
        if abs(_relative_error(operator)) > MAX_PREDICTION_ERROR:
            wrong.append(operator)
    for label, operators in _by_kind(wrong):
        errors = [_relative_error(operator) for operator in operators]
        low, high = min(errors), max(errors)
        error = f"{100 * low:+.0f} %"
        if high > low:
            error += f" to {100 * high:+.0f} %"
        yield _finding("prediction", label=label, error=error)


def _relative_error(operator: OperatorReport) -> float:
    """Return the relative error of a prediction, positive if the operator is slower."""
    return operator.count / operator.predicted - 1
