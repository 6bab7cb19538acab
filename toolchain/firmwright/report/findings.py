"""What in a report is worth a look: warnings with something to try.

In: a `BuildReport` without findings. Out: findings, the costliest kind first. Each is decided by
figures of the report alone; none is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from firmwright.report.model import BuildReport, OperatorReport, ReportFinding

FULL_POOL_RATIO = 0.9
"""From this share on a memory is nearly full."""
FULL_STACK_RATIO = 0.75
MIN_SHARE = 0.02
"""Operators below this share of a run are not worth a word."""
MAX_PREDICTION_ERROR = 0.3
"""Predictions further off than this share are told, for operators that matter."""
MIN_PREDICTED_SHARE = 0.05
_MOVES = {"transpose": "transposes", "quantize": "quantize", "dequantize": "dequantize"}


def find_issues(report: BuildReport) -> tuple[ReportFinding, ...]:
    """Everything worth a look."""
    return (
        *_slow_paths(report),
        *_moves(report),
        *_full_memories(report),
        *_stack(report),
        *_plan(report),
        *_predictions(report),
    )


def _share(report: BuildReport, operator: OperatorReport) -> float:
    return operator.count / max(report.total, 1)


def _slow_paths(report: BuildReport) -> Iterator[ReportFinding]:
    slow = [
        operator
        for operator in report.operators
        if operator.schedule == "default" and _share(report, operator) >= MIN_SHARE
    ]
    for called, several in _by_kind(slow):
        share = 100 * sum(_share(report, operator) for operator in several)
        yield ReportFinding(
            f"{called} run as default loops, {share:.1f} % of the run: no faster schedule takes "
            "them.",
            "firmwright ops says which types and shapes have a schedule for this core.",
        )
    if report.library_floats:
        yield ReportFinding(
            "floats are computed by the compiler's library: the core has no unit for them.",
            "firmwright quantize, or a board with such a unit.",
        )


def _by_kind(operators: Iterable[OperatorReport]) -> Iterator[tuple[str, list[OperatorReport]]]:
    """Operators of a kind together, with words for them."""
    kinds: dict[str, list[OperatorReport]] = {}
    for operator in operators:
        kinds.setdefault(operator.kind, []).append(operator)
    for kind, several in kinds.items():
        yield f"{kind} {', '.join(str(operator.index) for operator in several)}", several


def _moves(report: BuildReport) -> Iterator[ReportFinding]:
    for kind, word in _MOVES.items():
        left = [operator for operator in report.operators if operator.kind == kind]
        if left:
            count = sum(operator.count for operator in left)
            yield ReportFinding(
                f"{len(left)} {word} left: {count:,} {report.unit}, "
                f"{100 * count / max(report.total, 1):.1f} % of the run.",
                "export the model with its data in the order (or type) that its operators take.",
            )


def _full_memories(report: BuildReport) -> Iterator[ReportFinding]:
    less_ram = "the table of programs with less RAM, or --ram BYTES."
    less_flash = "the largest owners of flash, --optimize size, or --const-pool."
    memories = [
        *(("pool", p.name, p.used_bytes, p.limit_bytes, less_ram) for p in report.pools),
        *(("region", r.name, r.used_bytes, r.size_bytes, less_flash) for r in report.regions),
    ]
    for what, name, used, size, hint in memories:
        if size and used >= FULL_POOL_RATIO * size:
            share = 100 * used / size
            yield ReportFinding(
                f"{what} {name} is nearly full: {used:,} of {size:,} bytes ({share:.1f} %).", hint
            )


def _stack(report: BuildReport) -> Iterator[ReportFinding]:
    stack = report.stack
    if stack.reserve_bytes and stack.firmware_bytes >= FULL_STACK_RATIO * stack.reserve_bytes:
        yield ReportFinding(
            f"the worst path takes {stack.firmware_bytes:,} of the {stack.reserve_bytes:,} bytes "
            "that are kept for the stack.",
            "a larger stack in the board's [limits].",
        )


def _plan(report: BuildReport) -> Iterator[ReportFinding]:
    gap = report.workspace_bytes - report.lower_bound_bytes
    if gap > 0:
        yield ReportFinding(
            f"the plan is {gap:,} bytes above what the worst moment needs.",
            "--planner exact or cpsat, which search longer.",
        )


def _predictions(report: BuildReport) -> Iterator[ReportFinding]:
    if report.unit != "instructions":
        return
    wrong = [
        operator
        for operator in report.operators
        if _share(report, operator) >= MIN_PREDICTED_SHARE
        and operator.predicted
        and abs(_off(operator)) > MAX_PREDICTION_ERROR
    ]
    for called, several in _by_kind(wrong):
        least, most = min(map(_off, several)), max(map(_off, several))
        told = f"{100 * least:+.0f} %" + (f" to {100 * most:+.0f} %" if most > least else "")
        yield ReportFinding(
            f"the prediction for {called} is off: measured {told}.",
            "firmwright tune measures what the choice of kernels goes by.",
        )


def _off(operator: OperatorReport) -> float:
    return operator.count / operator.predicted - 1
