"""Groups of calls that have no pattern: those of the core, and assigned ones."""

from collections.abc import Sequence

from firmwright.ir.graph.nodes import Function
from firmwright.partitioning.regions import CallGroup
from firmwright.partitioning.target_resolution import CORE_TARGET_NAME


def groups_of_core(function: Function, matches: Sequence[CallGroup]) -> list[CallGroup]:
    """Return each open call, and each match's calls, as groups that the core runs."""
    annotated: set[int] = set()
    singles: list[tuple[int, ...]] = []
    for index, call in enumerate(function.body):
        if call.target in ("", CORE_TARGET_NAME):
            singles.append((index,))
        else:
            annotated.add(index)
    several = [match.calls for match in matches]
    groups: list[CallGroup] = []
    for calls in dict.fromkeys([*singles, *several]):
        if annotated.isdisjoint(calls):
            groups.append(CallGroup(calls))
    return groups


def assigned_calls(function: Function) -> list[CallGroup]:
    """Return the calls that an earlier partition assigned to targets."""
    groups: list[CallGroup] = []
    for index, call in enumerate(function.body):
        if call.target and call.op.startswith("@"):
            groups.append(CallGroup((index,), call.target))
    return groups
