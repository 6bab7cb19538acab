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
from dataclasses import dataclass, replace

from firmwright.ir.graph.nodes import Call, Function
from firmwright.ir.module import IRModule
from firmwright.ir.tir.schedule import Alternative
from firmwright.select.aot_main import build_main
from firmwright.select.choice import Estimate, Picks, choose, improved, needs_of
from firmwright.select.parts import SegmentParts, single_parts
from firmwright.select.programs import Part, Program, frontier, peak_bytes
from firmwright.select.row_loop import Segment
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
    """A selected module with what it takes by estimate; `segments` are spans of call indices."""

    module: IRModule
    instructions: int
    workspace_bytes: int
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
_ROUNDS = 4
"""Times that the planner corrects what arithmetic says of parts, before programs stand."""


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
    for _ in range(_ROUNDS):
        programs = frontier(parts, len(ordered))
        found = [_candidate(module, ordered, program, needs, planner) for program in programs]
        more = {id(p): size for _, told in found for p, size in told if size > p.bytes}
        if not more:
            break
        parts = [replace(p, bytes=more[id(p)]) if id(p) in more else p for p in parts]
    return tuple(candidate for candidate, _ in found)


def _candidate(
    module: IRModule,
    ordered: _Ordered,
    program: Program,
    needs: Sequence[Sequence[int]],
    planner: Planner,
) -> tuple[Candidate, list[tuple[Part, int]]]:
    """The program as a module, and what the planner says that each of its parts needs.

    Single calls next to each other may have to agree on a direction, which no part's price says: if
    the plan takes more than the program's peak, they change where that costs little.
    """
    picked = {part.first: part.pick for part in program}
    picks = tuple(picked.get(index, 0) for index in range(len(ordered)))
    segments = [part.segment for part in program if part.segment is not None]
    spans = tuple((segment.first, segment.end) for segment in segments)

    def ask(trial: Picks) -> Estimate:
        return planner.estimate(_build(module, ordered, trial, segments))

    estimate = ask(picks)
    if estimate.workspace_bytes > peak_bytes(program):
        picks = _in_agreement(ordered, program, picks, needs, ask)
        estimate = ask(picks)
    built = _build(module, ordered, picks, segments)
    told = [
        (part, max(estimate.call_bytes.get(call, 0) for call in range(part.first, part.end)))
        for part in program
    ]
    inside = {index for first, end in spans for index in range(first, end)}
    total = sum(part.instructions for part in program if part.segment is not None)
    total += sum(
        found[pick].instructions
        for index, ((_, found), pick) in enumerate(zip(ordered, picks, strict=True))
        if found and index not in inside
    )
    return Candidate(built, total, estimate.workspace_bytes, spans), told


def _in_agreement(
    ordered: _Ordered,
    program: Program,
    picks: Picks,
    needs: Sequence[Sequence[int]],
    ask: Callable[[Picks], Estimate],
) -> Picks:
    """`picks` with other alternatives for single calls that cost at most a tenth more."""
    allowed = [_width(found, _BUDGETS["balanced"].call_percent) for _, found in ordered]
    calls = [part.first for part in program if part.segment is None and allowed[part.first] > 1]
    narrowed = [
        found[: max(width, picks[i] + 1)]
        for i, (found, width) in enumerate(zip(needs, allowed, strict=True))
    ]
    return improved(picks, peak_bytes(program), narrowed, calls, ask)


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
    built = _build(module, ordered, picks)
    size_bytes = planner.estimate(built).workspace_bytes
    return Candidate(built, _spent(ordered, picks), size_bytes)


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


def _build(
    module: IRModule,
    ordered: _Ordered,
    picks: Sequence[int],
    segments: Sequence[Segment] = (),
) -> IRModule:
    chosen = tuple(
        (call, found[pick] if found else None)
        for (call, found), pick in zip(ordered, picks, strict=True)
    )
    return build_main(module, chosen, segments)
