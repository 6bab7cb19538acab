"""Operators that the user assigns to targets by their tensors: TENSOR=TARGET[:PERCENT].

Their calls are annotated before patterns are matched; the target `cpu` keeps them on
the core. A percentage is the target's share of the operator
(`partitioning/engine_split.py`). Several accelerators share an operator with
TENSOR=TARGET:PERCENT,TARGET:PERCENT; the core computes the rest.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from firmwright.base.errors import UsageError
from firmwright.base.suggestions import suggest_name
from firmwright.ir.graph.nodes import Call, Function
from firmwright.ir.module import IRModule
from firmwright.partitioning.pattern_matching import ActiveBackend, all_matches
from firmwright.partitioning.target_resolution import (
    CORE_TARGET_NAME,
    target_of,
    targets_by_tensor,
)


@dataclass(frozen=True, slots=True)
class OffloadShare:
    """A target, and its percentage of an operator."""

    target: str
    percent: int


def parse_shares(text: str) -> tuple[OffloadShare, ...]:
    """Return the shares of `TARGET:PERCENT`, or of several, separated by commas.

    A target without a percentage executes the whole operator. Raise ValueError with a
    reason for other text.
    """
    shares: list[OffloadShare] = []
    items = text.split(",")
    for item in items:
        target, colon, percent = item.strip().partition(":")
        is_percentage = percent.isdecimal() and len(percent) <= 3
        if colon and not (is_percentage and int(percent) <= 100):
            raise ValueError("a share is a percentage from 0 to 100 of an accelerator")
        shares.append(OffloadShare(target, int(percent) if colon else 100))
    names = {share.target for share in shares}
    total = sum(share.percent for share in shares)
    least = min(share.percent for share in shares)
    if len(shares) > 1 and (total > 100 or least < 1 or len(names) < len(shares)):
        raise ValueError(
            "the shares of different accelerators are percentages from 1, together at "
            "most 100"
        )
    return tuple(shares)


def requested_shares(module: IRModule) -> dict[str, tuple[OffloadShare, ...]]:
    """Return the shares that the user or a search chose, by tensor.

    Raise UsageError for text of a module's file that is no share.
    """
    shares: dict[str, tuple[OffloadShare, ...]] = {}
    for tensor, text in module.results.offload_shares:
        try:
            shares[tensor] = parse_shares(text)
        except ValueError as error:
            raise refusal(module, tensor, text, str(error)) from error
    return shares


def format_shares(shares: Sequence[OffloadShare]) -> str:
    """Return the text that `parse_shares` reads."""
    return ",".join(f"{share.target}:{share.percent}" for share in shares)


def annotate_offloaded_calls(
    module: IRModule, active: Sequence[ActiveBackend]
) -> IRModule:
    """Apply the requests in the settings of a module and remove them; shares remain.

    Raise UsageError for a request that names an unknown tensor or target, contradicts
    an assignment of the model, or asks for an operator that no pattern of the target
    takes.
    """
    requests = module.settings.offload
    new_shares = tuple(request for request in requests if ":" in request[1])
    shares = module.results.offload_shares + new_shares
    module = replace(
        module,
        settings=replace(module.settings, offload=()),
        results=replace(module.results, offload_shares=shares),
    )
    owners = targets_by_tensor(module)
    accelerators = [item.name for item in active]
    places: dict[str, str] = {}
    for tensor, text in requests:
        _check_request(module, tensor, text, owners, accelerators)
        places[tensor] = parse_shares(text)[0].target
    open_places: dict[str, str] = {}
    for tensor, target in places.items():
        if not owners[tensor]:
            open_places[tensor] = target

    def target_for(call: Call) -> str:
        return open_places.get(call.outputs[0].name, call.target)

    module = _map_targets(module, target_for)
    _check_matches(module, open_places, active)
    return module


def _check_request(
    module: IRModule,
    tensor: str,
    text: str,
    owners: Mapping[str, str],
    accelerators: Sequence[str],
) -> None:
    """Raise UsageError if the request `tensor=text` cannot be satisfied.

    `owners` has the target ("" if it has none yet) of the operator that makes each
    tensor.
    """
    targets = (CORE_TARGET_NAME, *accelerators)
    if tensor not in owners:
        hint = suggest_name(tensor, owners)
        raise refusal(module, tensor, text, "no operator makes it", hint)
    try:
        shares = parse_shares(text)
    except ValueError as error:
        raise refusal(module, tensor, text, str(error)) from error
    if owners[tensor] not in ("", shares[0].target):
        problem = f"it is assigned to {owners[tensor]} already"
        raise refusal(module, tensor, text, problem)
    for share in shares:
        if share.target not in targets:
            problem = f"there is no target {share.target}"
            raise refusal(module, tensor, text, problem, ", ".join(targets))
        if ":" in text and share.target not in accelerators:
            problem = "a share is a percentage from 0 to 100 of an accelerator"
            raise refusal(module, tensor, text, problem)


def _check_matches(
    module: IRModule, places: Mapping[str, str], active: Sequence[ActiveBackend]
) -> None:
    """Raise UsageError if no pattern of a target has an operator assigned to it."""
    if not places:
        return
    matched: set[tuple[str, str]] = set()
    for function in module.functions.values():
        if not isinstance(function, Function) or target_of(function):
            continue
        for group in all_matches(function, module, active):
            if not group.entries:
                continue
            for index in group.calls:
                tensor = function.body[index].outputs[0].name
                matched.add((tensor, group.target))
    for tensor, target in places.items():
        if target != CORE_TARGET_NAME and (tensor, target) not in matched:
            hint = f"firmwright backends {target}, which lists its patterns"
            problem = "no pattern of the target takes it"
            raise refusal(module, tensor, target, problem, hint)


def refusal(
    module: IRModule, tensor: str, target: str, problem: str, hint: str = ""
) -> UsageError:
    """Return the error for the request `--offload TENSOR=TARGET`."""
    what = f"--offload {tensor}={target} is invalid: {problem}."
    return UsageError(what, where=module.name, hint=hint and f"{hint}.")


def without_core_annotations(module: IRModule) -> IRModule:
    """Remove the annotation `cpu`, as the core is the default of calls."""

    def target_for(call: Call) -> str:
        return "" if call.target == CORE_TARGET_NAME else call.target

    return _map_targets(module, target_for)


def _map_targets(module: IRModule, target_for: Callable[[Call], str]) -> IRModule:
    """Set the targets of the open calls of functions without a target."""
    for function in tuple(module.functions.values()):
        if not isinstance(function, Function) or target_of(function):
            continue
        body: list[Call] = []
        for call in function.body:
            if not call.op.startswith("@"):
                call = replace(call, target=target_for(call))
            body.append(call)
        if tuple(body) != function.body:
            module = module.with_function(replace(function, body=tuple(body)))
    return module
