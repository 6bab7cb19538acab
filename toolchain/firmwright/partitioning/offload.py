"""Operators that the user assigns to targets by their tensors: TENSOR=TARGET[:PERCENT].

Their calls are annotated before patterns are matched; the target `cpu` keeps them on the core. A
percentage is the target's share of the operator (`partitioning/engine_split.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from firmwright.base.errors import UsageError
from firmwright.base.suggestions import suggest_name
from firmwright.ir.graph.nodes import Call, Function
from firmwright.ir.module import IRModule
from firmwright.partitioning.pattern_matching import ActiveBackend, all_matches
from firmwright.partitioning.target_resolution import CORE_TARGET_NAME, target_of, targets_by_tensor


def annotate_offloaded_calls(module: IRModule, active: Sequence[ActiveBackend]) -> IRModule:
    """Apply the requests in the settings of a module and remove them; shares remain."""
    requests, earlier = module.settings.offload, module.results.offload_shares
    shares = (*earlier, *(request for request in requests if ":" in request[1]))
    module = replace(
        module,
        settings=replace(module.settings, offload=()),
        results=replace(module.results, offload_shares=shares),
    )
    owners = targets_by_tensor(module)
    targets = (CORE_TARGET_NAME, *(item.name for item in active))
    places: dict[str, str] = {}
    for tensor, text in requests:
        target, colon, percent = text.partition(":")
        if tensor not in owners:
            hint = suggest_name(tensor, owners)
            raise refusal(module, tensor, text, "no operator makes it", hint)
        if owners[tensor] not in ("", target):
            raise refusal(module, tensor, text, f"it is assigned to {owners[tensor]} already")
        if target not in targets:
            what, hint = f"there is no target {target}", ", ".join(targets)
            raise refusal(module, tensor, text, what, hint)
        if colon and not (target in targets[1:] and percent.isdecimal() and int(percent) <= 100):
            what = "a share is a percentage from 0 to 100 of an accelerator"
            raise refusal(module, tensor, text, what)
        places[tensor] = target
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
            raise refusal(module, tensor, target, "no pattern of the target takes it", hint)


def refusal(module: IRModule, tensor: str, target: str, problem: str, hint: str = "") -> UsageError:
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
