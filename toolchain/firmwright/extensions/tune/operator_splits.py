"""Candidates of Collage in which several engines compute one operator together.

Rows of its output, or output channels of a fully connected layer, are divided so that
the engines end together. The parts are views of one tensor: nothing is copied.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations

from firmwright.extensions.tune.collage import PartCost, PartitionCandidate
from firmwright.ir.graph.nodes import Call, Function
from firmwright.ir.module import IRModule
from firmwright.ops.registry import op_table
from firmwright.partitioning.engine_instances import engine_device
from firmwright.partitioning.offload import OffloadShare
from firmwright.partitioning.partition_result import RegionCost
from firmwright.partitioning.pattern_matching import (
    ActiveBackend,
    active_backends,
    all_matches,
    make_match,
)
from firmwright.passes.graph.multi_core_split import CallSplitter
from firmwright.targets.backend_calls import modeled_cost

_ENGINES_MAX = 4
"""Maximum number of engines of which all combinations are candidates."""


def split_candidates(
    function: Function, module: IRModule, candidates: Sequence[PartitionCandidate]
) -> list[PartitionCandidate]:
    """Return a candidate for each call and set of engines that can divide it.

    Engines work concurrently with the core. Those that merge regions take part in none:
    a part of an operator would end their regions.
    """
    engines: dict[str, ActiveBackend] = {}
    for item in active_backends(module):
        if engine_device(module, item.name) and not item.backend.merge_regions:
            engines[item.name] = item
    splitter = CallSplitter(module, op_table())
    found: list[PartitionCandidate] = []
    for index, call in enumerate(function.body):
        if not splitter.is_large(call):
            continue
        whole: dict[str, PartitionCandidate] = {}
        for candidate in candidates:
            is_known = candidate.cost.status == "ok"
            target = candidate.group.target
            if candidate.group.calls == (index,) and target in engines and is_known:
                whole[target] = candidate
        for own in _combinations(list(whole.values())):
            taken = [engines[candidate.group.target] for candidate in own]
            divided = _divided(call, splitter, taken, own)
            if divided is not None:
                found.append(divided)
    return found


def _combinations(
    whole: Sequence[PartitionCandidate],
) -> Iterator[tuple[PartitionCandidate, ...]]:
    """Yield the sets of two or more of the engines with the lowest costs."""
    cheapest = sorted(whole, key=lambda candidate: candidate.cost.count)[:_ENGINES_MAX]
    for count in range(2, len(cheapest) + 1):
        yield from combinations(cheapest, count)


def balanced_shares(costs: Mapping[str, int]) -> tuple[OffloadShare, ...]:
    """Return shares of 100 % in inverse proportion to the costs of the whole operator.

    The targets with such shares end at the same time. A cost of 0 counts as one cycle.
    """
    speeds = {target: Fraction(1, max(1, cost)) for target, cost in costs.items()}
    total = sum(speeds.values())
    shares: list[OffloadShare] = []
    taken = 0
    reached = Fraction(0)
    for target, speed in speeds.items():
        reached += speed
        end = round(100 * reached / total)
        shares.append(OffloadShare(target, end - taken))
        taken = end
    return tuple(shares)


def _divided(
    call: Call,
    splitter: CallSplitter,
    engines: Sequence[ActiveBackend],
    whole: Sequence[PartitionCandidate],
) -> PartitionCandidate | None:
    """Return the candidate of a call divided over engines, or None if one has no part.

    The cost is that of the part that ends last.
    """
    costs = {item.group.target: item.cost.count for item in whole}
    shares = balanced_shares(costs)
    if any(share.percent < 1 for share in shares):
        return None
    weights: list[tuple[str, int]] = []
    for share in shares:
        weights.append((engine_device(splitter.module, share.target), share.percent))
    slices = splitter.split(call, weights)
    if slices is None:
        return None
    module = splitter.with_constants(splitter.module)
    parts: list[PartCost] = []
    for share, engine, part in zip(shares, engines, slices, strict=True):
        count = _part_cost(part.call, engine, module, costs[share.target], share)
        if count is None:
            return None
        parts.append(PartCost(share, count))
    slowest = max(part.count for part in parts)
    cost = RegionCost("ok", slowest, "modeled")
    return PartitionCandidate(whole[0].group, cost, tuple(parts))


def _part_cost(
    part: Call,
    engine: ActiveBackend,
    module: IRModule,
    whole: int,
    share: OffloadShare,
) -> int | None:
    """Return the cycles of a part, or None if no pattern of the engine takes it.

    An engine that declares none has its share of the cost of the whole operator.
    """
    own = Function("part", tuple(part.variables), (part,), part.outputs)
    if not any(match.entries for match in all_matches(own, module, [engine])):
        return None
    declared = modeled_cost(engine.backend, make_match((0,), engine, own, module))
    return whole * share.percent // 100 if declared is None else declared
