"""Finds possible problems in a report and suggests remedies."""

from collections.abc import Iterable, Iterator

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


def find_issues(report: BuildReport) -> tuple[ReportFinding, ...]:
    rules = (_slow_paths, _rejections, _moves, _full_memories, _stack, _plan, _predictions)
    return tuple(finding for rule in rules for finding in rule(report))


def _share(report: BuildReport, operator: OperatorReport) -> float:
    return operator.count / max(report.total, 1)


def _slow_paths(report: BuildReport) -> Iterator[ReportFinding]:
    default = [operator for operator in report.operators if operator.schedule == "default"]
    slow = [operator for operator in default if _share(report, operator) >= MIN_SHARE]
    for label, operators in _by_kind(slow):
        share = 100 * sum(_share(report, operator) for operator in operators)
        verb = "uses" if len(operators) == 1 else "use"
        yield ReportFinding(
            f"{label} {verb} the default loops ({share:.1f} % of the run): no optimized schedule "
            "applies.",
            "see firmwright ops for the types and shapes with schedules for this core.",
        )
    if report.library_floats:
        yield ReportFinding(
            "the compiler's library computes floats, since the core has no floating-point unit.",
            "use firmwright quantize, or a board with a floating-point unit.",
        )


def _rejections(report: BuildReport) -> Iterator[ReportFinding]:
    for item in report.rejections:
        yield ReportFinding(
            f"{item.kind} {item.tensor} runs on the core: {item.reason}.",
            f"firmwright backends {item.target} lists the operators of this target.",
        )


def _by_kind(operators: Iterable[OperatorReport]) -> Iterator[tuple[str, list[OperatorReport]]]:
    kinds: dict[str, list[OperatorReport]] = {}
    for operator in operators:
        kinds.setdefault(operator.kind, []).append(operator)
    for kind, several in kinds.items():
        yield f"{kind} {', '.join(str(operator.index) for operator in several)}", several


def _moves(report: BuildReport) -> Iterator[ReportFinding]:
    for kind in _MOVES:
        remaining = [operator for operator in report.operators if operator.kind == kind]
        if remaining:
            count = sum(operator.count for operator in remaining)
            verb = "operator remains" if len(remaining) == 1 else "operators remain"
            yield ReportFinding(
                f"{len(remaining)} {kind} {verb}: {count:,} {report.unit}, "
                f"{100 * count / max(report.total, 1):.1f} % of the run.",
                "export the model with data in the layout (or type) of its operators.",
            )


def _full_memories(report: BuildReport) -> Iterator[ReportFinding]:
    less_ram = "see the table of programs with less RAM, or use --ram BYTES."
    less_flash = "see the largest owners of flash, or use --optimize size or --const-pool."
    memories = [
        *(("pool", p.name, p.used_bytes, p.limit_bytes, less_ram) for p in report.pools),
        *(("region", r.name, r.used_bytes, r.size_bytes, less_flash) for r in report.regions),
    ]
    for kind, name, used_bytes, size, hint in memories:
        if size and used_bytes >= FULL_POOL_RATIO * size:
            share = 100 * used_bytes / size
            yield ReportFinding(
                f"{kind} {name} is nearly full: {used_bytes:,} of {size:,} bytes ({share:.1f} %).",
                hint,
            )


def _stack(report: BuildReport) -> Iterator[ReportFinding]:
    stack = report.stack
    if stack.reserve_bytes and stack.firmware_bytes >= FULL_STACK_RATIO * stack.reserve_bytes:
        yield ReportFinding(
            f"the worst path needs {stack.firmware_bytes:,} of {stack.reserve_bytes:,} bytes "
            "reserved for the stack.",
            "increase the stack in the board's [limits].",
        )


def _plan(report: BuildReport) -> Iterator[ReportFinding]:
    gap = report.workspace_bytes - report.lower_bound_bytes
    if gap > 0:
        yield ReportFinding(
            f"the plan is {gap:,} bytes above the lower bound.",
            "use --planner exact, which searches longer.",
        )


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
        yield ReportFinding(
            f"the prediction for {label} is inaccurate: measured {error}.",
            "run firmwright tune, so that kernels are chosen by measurements.",
        )


def _relative_error(operator: OperatorReport) -> float:
    return operator.count / operator.predicted - 1
