"""Operators that the user assigns to targets by their tensors: TENSOR=TARGET.

Their calls are annotated before patterns are matched; the target `cpu` keeps them on the core.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from firmwright.base.errors import UsageError
from firmwright.base.suggestions import suggest_name
from firmwright.ir.graph.nodes import Call, Function
from firmwright.ir.module import IRModule
from firmwright.partitioning.function_targets import target_of, targets_by_tensor
from firmwright.partitioning.pattern_matching import ActiveBackend, all_matches
from firmwright.partitioning.target_resolution import CORE_TARGET_NAME


def annotate_offloaded_calls(module: IRModule, active: Sequence[ActiveBackend]) -> IRModule:
    """Apply the module's attribute `offload` and remove it."""
    attrs = dict(module.attrs)
    places = dict(cast("tuple[tuple[str, str], ...]", attrs.pop("offload", ())))
    module = replace(module, attrs=attrs)
    owners = targets_by_tensor(module)
    targets = (CORE_TARGET_NAME, *(item.name for item in active))
    for tensor, target in places.items():
        if tensor not in owners:
            hint = suggest_name(tensor, owners)
            raise _error(module, tensor, target, "no operator makes it", hint)
        if owners[tensor] not in ("", target):
            raise _error(module, tensor, target, f"it is assigned to {owners[tensor]} already")
        if target not in targets:
            raise _error(module, tensor, target, f"there is no target {target}", ", ".join(targets))
    open_places = {tensor: target for tensor, target in places.items() if not owners[tensor]}
    module = _map_targets(module, lambda call: open_places.get(call.outputs[0].name, call.target))
    _check_matches(module, open_places, active)
    return module


def _check_matches(
    module: IRModule, places: Mapping[str, str], active: Sequence[ActiveBackend]
) -> None:
    """Raise UsageError if a target has no pattern with an operator that it is to run."""
    matched: set[tuple[str, str]] = set()
    for function in module.functions.values():
        if places and isinstance(function, Function) and not target_of(function):
            matches = (group for group in all_matches(function, module, active) if group.entries)
            outputs = [call.outputs[0].name for call in function.body]
            matched |= {(outputs[i], group.target) for group in matches for i in group.calls}
    for tensor, target in places.items():
        if target != CORE_TARGET_NAME and (tensor, target) not in matched:
            hint = f"firmwright backends {target}, which lists its patterns"
            raise _error(module, tensor, target, "no pattern of the target takes it", hint)


def _error(module: IRModule, tensor: str, target: str, problem: str, hint: str = "") -> UsageError:
    what = f"--offload {tensor}={target} is invalid: {problem}."
    return UsageError(what, where=module.name, hint=hint and f"{hint}.")


def without_core_annotations(module: IRModule) -> IRModule:
    """Remove the annotation `cpu`, as the core is the default of calls."""
    return _map_targets(module, lambda call: call.target if call.target != CORE_TARGET_NAME else "")


def _map_targets(module: IRModule, target_for: Callable[[Call], str]) -> IRModule:
    """Set the targets of the open calls of functions without a target."""
    for function in tuple(module.functions.values()):
        if isinstance(function, Function) and not target_of(function):
            targets = [c.target if c.op[0] == "@" else target_for(c) for c in function.body]
            if targets != [call.target for call in function.body]:
                pairs = zip(function.body, targets, strict=True)
                body = tuple(replace(call, target=target) for call, target in pairs)
                module = module.with_function(replace(function, body=body))
    return module
