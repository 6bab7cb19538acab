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

from firmwright.ir.graph.nodes import Call, Function
from firmwright.ir.module import IRModule
from firmwright.ir.tir.schedule import Alternative
from firmwright.select.aot_main import build_main
from firmwright.select.choice import Estimate, Picks, choose, needs_of
from firmwright.select.parts import SegmentParts, single_parts
from firmwright.select.programs import Program, frontier, total_instructions
from firmwright.select.segments import RowsOf, Segments

Offer = tuple[Call, tuple[Alternative, ...]]
_Ordered = Sequence[tuple[Call, Sequence[Alternative]]]


@dataclass(frozen=True, slots=True)
class Planner:
    """The pipeline's answers: a quick estimate, and whether a module's plan fits its pools."""

    estimate: Callable[[IRModule], Estimate]
    fits: Callable[[IRModule], bool]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A selected module with its predicted instructions; `segments` are spans of call indices."""

    module: IRModule
    instructions: int
    segments: tuple[tuple[int, int], ...] = ()


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
        smallest = _smallest((*alone, *found), planner, _BUDGETS[goal])
        if planner.fits(smallest.module):
            return smallest.module
    fitting = _first_fitting(found, planner)
    if fitting is None:
        found = candidates(module, offers, planner, rows_of, _ANY_PERCENT)
        fitting = _first_fitting(found, planner)
    return (fitting or min(found, key=lambda item: _bytes(planner, item))).module


def candidates(
    module: IRModule,
    offers: Sequence[Offer],
    planner: Planner,
    rows_of: RowsOf,
    call_percent: int = _CALL_PERCENT,
) -> tuple[Candidate, ...]:
    """Programs from the fastest to the one with the lowest peak, by prediction.

    Alternatives that cost more than `call_percent` of a call's fastest are in none.
    """
    ordered = _ordered(offers, "speed")
    entry = module.entry
    assert isinstance(entry, Function)
    widths = [_width(found, call_percent) for _, found in ordered]
    needs = needs_of(widths, lambda trial: planner.estimate(_build(module, ordered, trial)))
    offered = [found[:width] for (_, found), width in zip(ordered, widths, strict=True)]
    parts = [p for p in single_parts(offered, needs) if p.first or not module.io.input_rows]
    parts += SegmentParts(module, entry, Segments(entry, rows_of)).parts()
    return tuple(_candidate(module, ordered, found) for found in frontier(parts, len(ordered)))


def _candidate(module: IRModule, ordered: _Ordered, program: Program) -> Candidate:
    picks = {part.first: part.pick for part in program}
    chosen = tuple(
        (call, found[picks.get(index, 0)] if found else None)
        for index, (call, found) in enumerate(ordered)
    )
    segments = [part.segment for part in program if part.segment is not None]
    spans = tuple((segment.first, segment.end) for segment in segments)
    return Candidate(build_main(module, chosen, segments), total_instructions(program), spans)


def _first_fitting(found: Sequence[Candidate], planner: Planner) -> Candidate | None:
    return next((item for item in found if planner.fits(item.module)), None)


def _smallest(found: Sequence[Candidate], planner: Planner, budget: _Budget) -> Candidate:
    """The one that takes least of those that are fast enough."""
    limit = budget.total_percent * min(item.instructions for item in found)
    fast = [item for item in found if 100 * item.instructions <= limit]
    return min(fast, key=lambda item: (_bytes(planner, item), item.instructions))


def _bytes(planner: Planner, candidate: Candidate) -> int:
    return planner.estimate(candidate.module).workspace_bytes


# ---- every call as a whole ---------------------------------------------------------------------


def _whole(module: IRModule, offers: Sequence[Offer], planner: Planner, goal: str) -> Candidate:
    """One alternative a call, as the goal wants them."""
    ordered = _ordered(offers, goal)
    picks: Picks = tuple(0 for _ in ordered)
    if goal in _BUDGETS:
        picks = _chosen(module, ordered, _BUDGETS[goal], planner)
    return Candidate(_build(module, ordered, picks), _spent(ordered, picks))


def _ordered(offers: Sequence[Offer], goal: str) -> _Ordered:
    return [(call, sorted(found, key=_key(goal))) for call, found in offers]


def _key(goal: str) -> Callable[[Alternative], tuple[int, ...]]:
    if goal == "size":
        return lambda item: (item.flash_bytes, item.instructions)
    return lambda item: (item.instructions, item.scratch_bytes)


def _chosen(module: IRModule, ordered: _Ordered, budget: _Budget, planner: Planner) -> Picks:
    """What takes least memory of all that the budget allows."""
    limit = budget.call_percent
    while True:
        widths = [_width(found, limit) for _, found in ordered]
        picks = choose(widths, lambda trial: planner.estimate(_build(module, ordered, trial)))
        least = sum(found[0].instructions for _, found in ordered if found)
        if limit <= 100 or 100 * _spent(ordered, picks) <= budget.total_percent * least:
            return picks
        limit = max(100, limit - (budget.call_percent - 100) // 4 - 1)


def _spent(ordered: _Ordered, picks: Picks) -> int:
    pairs = zip(ordered, picks, strict=True)
    return sum(found[pick].instructions for (_, found), pick in pairs if found)


def _width(found: Sequence[Alternative], percent: int) -> int:
    """How many alternatives cost at most that much of the first."""
    return sum(100 * item.instructions <= percent * found[0].instructions for item in found)


def _build(module: IRModule, ordered: _Ordered, picks: Sequence[int]) -> IRModule:
    chosen = tuple(
        (call, found[pick] if found else None)
        for (call, found), pick in zip(ordered, picks, strict=True)
    )
    return build_main(module, chosen)
