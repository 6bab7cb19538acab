"""Selection: one alternative a call, by asking the planner what its choice costs.

In: the lowered calls, `module.attrs["optimize"]`, and `ask`, a function from the pipeline that
plans a module. Out: the module with kernels and AOT main. `speed` takes the fastest everywhere,
`size` the smallest. `balanced` considers what costs at most a tenth more than a call's fastest,
`ram` what costs at most three times that; where the total would rise by more than the goal allows,
the slowest choices are left out. Where the plan then does not fit, calls give up scratch, most
scratch first, until it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from firmwright.ir.graph.nodes import Call
from firmwright.ir.module import IRModule
from firmwright.ir.tir.schedule import Alternative
from firmwright.select.aot_main import build_main
from firmwright.select.choice import Estimate, Picks, choose

Offer = tuple[Call, tuple[Alternative, ...]]


@dataclass(frozen=True, slots=True)
class Planner:
    """The pipeline's answers: a quick estimate, and whether a module's plan fits its pools."""

    estimate: Callable[[IRModule], Estimate]
    fits: Callable[[IRModule], bool]


@dataclass(frozen=True, slots=True)
class _Budget:
    """Most instructions of a choice, in percent of the fastest: of one call, of all together."""

    call_percent: int
    total_percent: int


_BUDGETS = {"balanced": _Budget(110, 105), "ram": _Budget(300, 130)}


def select_module(module: IRModule, offers: Sequence[Offer], planner: Planner) -> IRModule:
    """The module with one kernel for every call."""
    goal = str(module.attrs.get("optimize", "balanced"))
    ordered = [(call, sorted(found, key=_key(goal))) for call, found in offers]
    picks = [0] * len(ordered)
    if goal in _BUDGETS:
        picks = list(_chosen(module, ordered, _BUDGETS[goal], planner))
    selected = _build(module, ordered, picks)
    while not planner.fits(selected):
        worst = _most_scratch(ordered, picks)
        if worst is None:
            break
        picks[worst] = _leaner(ordered[worst][1], picks[worst])
        selected = _build(module, ordered, picks)
    return selected


def _key(goal: str) -> Callable[[Alternative], tuple[int, ...]]:
    if goal == "size":
        return lambda item: (item.flash_bytes, item.instructions)
    return lambda item: (item.instructions, item.scratch_bytes)


def _chosen(
    module: IRModule,
    ordered: Sequence[tuple[Call, Sequence[Alternative]]],
    budget: _Budget,
    planner: Planner,
) -> Picks:
    """What takes least memory of all that the budget allows."""
    limit = budget.call_percent
    while True:
        widths = [_width(found, limit) for _, found in ordered]
        picks = choose(widths, lambda trial: planner.estimate(_build(module, ordered, trial)))
        spent = sum(found[pick].instructions for (_, found), pick in _picked(ordered, picks))
        least = sum(found[0].instructions for _, found in ordered if found)
        if limit <= 100 or 100 * spent <= budget.total_percent * least:
            return picks
        limit = max(100, limit - (budget.call_percent - 100) // 4 - 1)


def _picked(
    ordered: Sequence[tuple[Call, Sequence[Alternative]]], picks: Picks
) -> list[tuple[tuple[Call, Sequence[Alternative]], int]]:
    return [(item, pick) for item, pick in zip(ordered, picks, strict=True) if item[1]]


def _width(found: Sequence[Alternative], percent: int) -> int:
    """How many alternatives cost at most that much of the first."""
    return sum(100 * item.instructions <= percent * found[0].instructions for item in found)


def _build(
    module: IRModule,
    ordered: Sequence[tuple[Call, Sequence[Alternative]]],
    picks: Sequence[int],
) -> IRModule:
    chosen = tuple(
        (call, found[pick] if found else None)
        for (call, found), pick in zip(ordered, picks, strict=True)
    )
    return build_main(module, chosen)


def _leaner(found: Sequence[Alternative], pick: int) -> int:
    """The next alternative with less scratch, or `pick` where there is none."""
    for index in range(pick + 1, len(found)):
        if found[index].scratch_bytes < found[pick].scratch_bytes:
            return index
    return pick


def _most_scratch(
    ordered: Sequence[tuple[Call, Sequence[Alternative]]], picks: Sequence[int]
) -> int | None:
    """The call with the most scratch among those that can do with less."""
    movable = [
        index
        for index, (_, found) in enumerate(ordered)
        if found and _leaner(found, picks[index]) != picks[index]
    ]
    if not movable:
        return None
    return max(movable, key=lambda index: ordered[index][1][picks[index]].scratch_bytes)
