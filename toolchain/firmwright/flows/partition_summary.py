"""The operators and functions of each target in a partitioned module."""

from __future__ import annotations

from dataclasses import dataclass

from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.partitioning.function_targets import target_of
from firmwright.targets.kernel_builder import flatten_calls


@dataclass(frozen=True, slots=True)
class TargetShare:
    """The numbers of operators and functions of one target."""

    target: str
    operators: int
    functions: tuple[str, ...] = ()


def target_shares(module: IRModule) -> tuple[TargetShare, ...]:
    """Return the shares in the order of the module's targets.

    The core executes the operators that no other target has.
    """
    graphs = [func for func in module.functions.values() if isinstance(func, Function)]
    inner = {
        call.op[1:] for func in graphs if target_of(func) for call in func.body if call.op[0] == "@"
    }
    shares: list[TargetShare] = []
    for name, target in module.targets.items():
        functions = [func for func in graphs if target_of(func) == name and func.name not in inner]
        count = sum(len(flatten_calls(func, module)) for func in functions)
        shares.append(TargetShare(str(target), count, tuple(func.name for func in functions)))
    unassigned = sum(
        not call.op.startswith("@") for func in graphs if not target_of(func) for call in func.body
    )
    core = next((i for i, part in enumerate(shares) if not part.functions), None)
    names = [*module.targets]
    if core is not None and names[core] == "cpu":
        shares[core] = TargetShare(shares[core].target, unassigned)
    elif unassigned:
        shares.append(TargetShare("the board's core", unassigned))
    return tuple(shares)
