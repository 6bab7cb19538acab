"""Finds possible problems in a report and suggests remedies."""

from collections.abc import Iterable, Iterator

from firmwright.base.grouping import group_pairs
from firmwright.base.text_sections import read_sections
from firmwright.report.model import BuildReport, OperatorReport, ReportFinding

FULL_POOL_RATIO = 0.9
"""A memory counts as nearly full if at least this ratio is used."""
FULL_STACK_RATIO = 0.75
MIN_SHARE = 0.02
"""Operators below this share of a run are ignored."""
MAX_PREDICTION_ERROR = 0.3
"""Larger relative errors of predictions are reported."""
MIN_PREDICTED_SHARE = 0.05
_MOVES = ("transpose", "quantize", "dequantize")
_TEXT = read_sections(__file__, ".txt")


def find_issues(report: BuildReport) -> tuple[ReportFinding, ...]:
    rules = (_slow_paths, _rejections, _moves, _full_memories, _stack, _plan, _predictions)
    return tuple(finding for rule in rules for finding in rule(report))


def _finding(kind: str, /, **values: object) -> ReportFinding:
    *problem, remedy = _TEXT[kind].format(**values).splitlines()
    return ReportFinding(" ".join(problem), remedy)


def _share(report: BuildReport, operator: OperatorReport) -> float:
    return operator.count / max(report.total, 1)


def _slow_paths(report: BuildReport) -> Iterator[ReportFinding]:
    default = [operator for operator in report.operators if operator.schedule == "default"]
    slow = [operator for operator in default if _share(report, operator) >= MIN_SHARE]
    for label, operators in _by_kind(slow):
        percent = 100 * sum(_share(report, operator) for operator in operators)
        verb = "uses" if len(operators) == 1 else "use"
        yield _finding("default_loops", label=label, verb=verb, percent=percent)
    if report.library_floats:
        yield _finding("library_floats")


def _rejections(report: BuildReport) -> Iterator[ReportFinding]:
    for item in report.rejections:
        yield _finding("rejection", item=item)


def _by_kind(operators: Iterable[OperatorReport]) -> Iterator[tuple[str, list[OperatorReport]]]:
    for kind, several in group_pairs((item.kind, item) for item in operators).items():
        yield f"{kind} {', '.join(str(operator.index) for operator in several)}", several


def _moves(report: BuildReport) -> Iterator[ReportFinding]:
    for kind in _MOVES:
        remaining = [operator for operator in report.operators if operator.kind == kind]
        if remaining:
            count = sum(operator.count for operator in remaining)
            verb = "operator remains" if len(remaining) == 1 else "operators remain"
            values = {"kind": kind, "verb": verb, "count": count, "unit": report.unit}
            percent = 100 * count / max(report.total, 1)
            yield _finding("moves", number=len(remaining), percent=percent, **values)


def _full_memories(report: BuildReport) -> Iterator[ReportFinding]:
    memories = [
        *(("pool", p.name, p.used_bytes, p.limit_bytes) for p in report.pools),
        *(("region", r.name, r.used_bytes, r.size_bytes) for r in report.regions),
    ]
    for kind, name, used_bytes, size_bytes in memories:
        if size_bytes and used_bytes >= FULL_POOL_RATIO * size_bytes:
            values = {"used_bytes": used_bytes, "size_bytes": size_bytes}
            yield _finding(kind, name=name, percent=100 * used_bytes / size_bytes, **values)


def _stack(report: BuildReport) -> Iterator[ReportFinding]:
    stack = report.stack
    if stack.reserve_bytes and stack.firmware_bytes >= FULL_STACK_RATIO * stack.reserve_bytes:
        yield _finding("stack", stack=stack)


def _plan(report: BuildReport) -> Iterator[ReportFinding]:
    gap_bytes = report.workspace_bytes - report.lower_bound_bytes
    if gap_bytes > 0:
        yield _finding("plan", gap_bytes=gap_bytes)


def _predictions(report: BuildReport) -> Iterator[ReportFinding]:
    if report.unit != "instructions":
        return
    wrong = [
        operator
        for operator in report.operators
        if _share(report, operator) >= MIN_PREDICTED_SHARE
        and operator.predicted
        and abs(_relative_error(operator)) > MAX_PREDICTION_ERROR
    ]
    for label, operators in _by_kind(wrong):
        low, high = min(map(_relative_error, operators)), max(map(_relative_error, operators))
        error = f"{100 * low:+.0f} %" + (f" to {100 * high:+.0f} %" if high > low else "")
        yield _finding("prediction", label=label, error=error)


def _relative_error(operator: OperatorReport) -> float:
    return operator.count / operator.predicted - 1
