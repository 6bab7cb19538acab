"""Selection: kernels for all calls and what is row-streamed, by asking the planner what it costs.

In: the lowered calls, the row kernels of those that have some, `module.attrs["optimize"]`, and what
the pipeline's planner says of a module. Out: the module with kernels and AOT main.

* `speed` takes the fastest alternative everywhere, `size` the smallest, `balanced` what costs at
  most a tenth more than a call's fastest and takes least memory. Where that does not fit the pools,
  the fastest program that does is taken, calls and row-streamed segments mixed.
* `ram` takes the program with the lowest peak among those that are not much slower.
* With `module.attrs["ram_bytes"]` it is the fastest program within those bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from firmwright.ir.graph.nodes import Call
from firmwright.ir.module import IRModule
from firmwright.ir.tir.schedule import Alternative
from firmwright.select.candidates import (
    Candidate,
    Ordered,
    Programs,
    build,
    spent,
    whole,
    width,
)
from firmwright.select.choice import Estimate, Picks, choose
from firmwright.select.segments import RowsOf

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
_CALL_PERCENT = 300
"""Alternatives that cost more than that of a call's fastest wait until nothing else fits."""
_ANY_PERCENT = 1_000_000


def select_module(
    module: IRModule, offers: Sequence[Offer], planner: Planner, rows_of: RowsOf
) -> IRModule:
    """The module with a kernel for every call. `rows_of` gives a call's row kernels when wanted."""
    goal = str(module.attrs.get("optimize", "balanced"))
    is_free, fed = "ram_bytes" not in module.attrs, module.io.input_rows
    alone = (_whole(module, offers, planner, goal),) if is_free and not fed else ()
    if alone and goal != "ram" and planner.fits(alone[0].module):
        return alone[0].module
    found = candidates(module, offers, planner, rows_of)
    if is_free and goal in _BUDGETS and (fed or goal == "ram"):
        smallest = _smallest((*alone, *found), _BUDGETS[goal])
        if planner.fits(smallest.module):
            return smallest.module
    fitting = _first_fitting(found, planner)
    if fitting is None:
        found = candidates(module, offers, planner, rows_of, _ANY_PERCENT)
        fitting = _first_fitting(found, planner)
    return (fitting or min(found, key=lambda item: item.workspace_bytes)).module


def candidates(
    module: IRModule,
    offers: Sequence[Offer],
    planner: Planner,
    rows_of: RowsOf,
    call_percent: int = _CALL_PERCENT,
) -> tuple[Candidate, ...]:
    """Programs from the fastest to the one that takes least."""
    ordered = _ordered(offers, "speed")
    return Programs(module, ordered, rows_of, planner.estimate, call_percent).candidates()


def _first_fitting(found: Sequence[Candidate], planner: Planner) -> Candidate | None:
    return next((item for item in found if planner.fits(item.module)), None)


def _smallest(found: Sequence[Candidate], budget: _Budget) -> Candidate:
    """The one that takes least of those that are fast enough."""
    limit = budget.total_percent * min(item.instructions for item in found)
    fast = [item for item in found if 100 * item.instructions <= limit]
    return min(fast, key=lambda item: (item.workspace_bytes, item.instructions))


# ---- every call as a whole ---------------------------------------------------------------------


def _whole(module: IRModule, offers: Sequence[Offer], planner: Planner, goal: str) -> Candidate:
    """One alternative a call, as the goal wants them."""
    ordered = _ordered(offers, goal)
    picks: Picks = tuple(0 for _ in ordered)
    if goal in _BUDGETS:
        picks = _chosen(module, ordered, _BUDGETS[goal], planner)
    return whole(module, ordered, picks, planner.estimate)


def _ordered(offers: Sequence[Offer], goal: str) -> Ordered:
    return [(call, sorted(found, key=_key(goal))) for call, found in offers]


def _key(goal: str) -> Callable[[Alternative], tuple[int, ...]]:
    if goal == "size":
        return lambda item: (item.flash_bytes, item.instructions)
    return lambda item: (item.instructions, item.scratch_bytes)


def _chosen(module: IRModule, ordered: Ordered, budget: _Budget, planner: Planner) -> Picks:
    """What takes least memory of all that the budget allows."""
    limit = budget.call_percent
    while True:
        widths = [width(found, limit) for _, found in ordered]
        picks = choose(widths, lambda trial: planner.estimate(build(module, ordered, trial)))
        least = sum(found[0].instructions for _, found in ordered if found)
        if limit <= 100 or 100 * spent(ordered, picks) <= budget.total_percent * least:
            return picks
        limit = max(100, limit - (budget.call_percent - 100) // 4 - 1)
