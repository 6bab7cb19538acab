"""Selection: one alternative a call, under the pools' limits, by asking the planner what it costs.

In: the lowered calls, `module.attrs["optimize"]`, and `workspace_bytes`, a function from the
pipeline that plans a module and says what its workspace takes (None if it does not fit). Out: the
module with kernels and AOT main. The fastest alternative is taken everywhere; where the plan then
does not fit, calls give up scratch, most scratch first, until it does. With `ram` or `size` as the
goal the alternatives are ordered by scratch or by flash first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from firmwright.ir.graph.nodes import Call
from firmwright.ir.module import IRModule
from firmwright.ir.tir.schedule import Alternative
from firmwright.select.aot_main import build_main

Offer = tuple[Call, tuple[Alternative, ...]]


def select_module(
    module: IRModule,
    offers: Sequence[Offer],
    workspace_bytes: Callable[[IRModule], int | None],
) -> IRModule:
    """The module with one kernel for every call."""
    goal = str(module.attrs.get("optimize", "balanced"))
    ordered = [(call, sorted(found, key=_key(goal))) for call, found in offers]
    picks = [0] * len(ordered)
    selected = _build(module, ordered, picks)
    while workspace_bytes(selected) is None:
        worst = _most_scratch(ordered, picks)
        if worst is None:
            break
        picks[worst] = _leaner(ordered[worst][1], picks[worst])
        selected = _build(module, ordered, picks)
    return selected


def _key(goal: str) -> Callable[[Alternative], tuple[int, ...]]:
    if goal == "ram":
        return lambda item: (item.scratch_bytes, item.instructions)
    if goal == "size":
        return lambda item: (item.flash_bytes, item.instructions)
    return lambda item: (item.instructions, item.scratch_bytes)


def _build(
    module: IRModule, ordered: Sequence[tuple[Call, Sequence[Alternative]]], picks: Sequence[int]
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
