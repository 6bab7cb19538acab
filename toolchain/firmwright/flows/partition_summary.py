"""Who takes what of a partitioned module.

In: a module with a table of targets, not lowered yet. Out: for each target how many of the model's
operators it runs, and in which functions.
"""

from __future__ import annotations

from dataclasses import dataclass

from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.partitioning.function_targets import target_of
from firmwright.targets.kernel_builder import flatten_calls


@dataclass(frozen=True, slots=True)
class TargetShare:
    """One target's share."""

    target: str
    operators: int
    functions: tuple[str, ...] = ()


def target_shares(module: IRModule) -> tuple[TargetShare, ...]:
    """The shares, in the order of the module's table; the core's is what nobody else has."""
    graphs = [func for func in module.functions.values() if isinstance(func, Function)]
    inner = {
        call.op[1:] for func in graphs if target_of(func) for call in func.body if call.op[0] == "@"
    }
    parts: list[TargetShare] = []
    for name, target in module.targets.items():
        own = [func for func in graphs if target_of(func) == name and func.name not in inner]
        count = sum(len(flatten_calls(func, module)) for func in own)
        parts.append(TargetShare(str(target), count, tuple(func.name for func in own)))
    free = sum(
        not call.op.startswith("@") for func in graphs if not target_of(func) for call in func.body
    )
    core = next((i for i, part in enumerate(parts) if not part.functions), None)
    names = [*module.targets]
    if core is not None and names[core] == "cpu":
        parts[core] = TargetShare(parts[core].target, free)
    elif free:
        parts.append(TargetShare("the board's core", free))
    return tuple(parts)
