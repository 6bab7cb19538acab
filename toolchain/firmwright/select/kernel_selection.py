"""Selection: kernels for all calls and what is row-streamed, by asking the planner what it costs.

In: the lowered calls, the row kernels of those that have some, `module.attrs["optimize"]`, and what
the pipeline's planner says of a module. Out: the module with kernels and AOT main. Time is
predicted cycles where a table gives the core's timing, else predicted instructions.

* `speed` takes the fastest alternative everywhere, `size` the one with the least flash.
* `balanced` takes, of alternatives nearly as fast as the fastest, the program for which time^2 x
  flash^2 x workspace is least: a percent of time may cost a percent of flash or two of memory.
  Where that or `speed` does not fit the pools, the fastest program that does is taken, calls and
  row-streamed segments mixed.
* `ram` takes the program with the lowest peak among those that are not much slower.
* With `module.attrs["ram_bytes"]` it is the fastest program within those bytes.
* Code and constants stay within `module.attrs["flash_bytes"]`. Where that is not said, `balanced`
  and `ram` have a budget for what buys time with constants (select/flash_budget.py).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.schedule import LoweringCandidate
from firmwright.select.flash_budget import (
    CandidateCost,
    CandidatesPerCall,
    apply_default_flash_budget,
    dedupe_code_cost,
    fastest_candidates,
    fastest_time,
    fit_flash_budget,
)
from firmwright.select.fused_segments import RowsOf
from firmwright.select.memory_refinement import PlanEstimate
from firmwright.select.program_search import (
    OrderedCandidates,
    ProgramCandidate,
    ProgramSearch,
    whole_call_candidate,
)


@dataclass(frozen=True, slots=True)
class SelectionOracle:
    """The pipeline's answers: a quick estimate, and whether a module's plan fits its pools.

    Kernels of equal `key` can become one function.
    """

    estimate: Callable[[IRModule], PlanEstimate]
    fits: Callable[[IRModule], bool]
    key: Callable[[tir.PrimFunc], Hashable] = id


_SLOWER_PERCENT = {"balanced": 105, "ram": 130}
"""Most time of a program that takes least memory, in percent of the fastest.

The fastest is one of whole calls: rows take more flash than these may, and time is bought with it.
"""
_NEAR_PERCENT = 104
"""Most time of a call's alternative that `balanced` considers, in percent of its fastest."""
_CALL_PERCENT = 300
"""Alternatives that cost more than that of a call's fastest wait until nothing else fits."""
_ANY_PERCENT = 1_000_000


def select_module(
    module: IRModule, offers: CandidatesPerCall, rows_of: RowsOf, planner: SelectionOracle
) -> IRModule:
    """The module with a kernel for every call. `rows_of` gives a call's row kernels when wanted.

    DoesNotFitError where no choice is within the flash that may be taken.
    """
    goal = str(module.attrs.get("optimize", "balanced"))
    offers = _within_flash(module, dedupe_code_cost(offers, planner.key), goal)
    is_free, fed = "ram_bytes" not in module.attrs, module.io.stream_input_rows
    alone = (_whole(module, offers, planner, goal),) if is_free and not fed else ()
    if alone and goal != "ram" and planner.fits(alone[0].module):
        return alone[0].module
    found = _candidates(module, offers, rows_of, planner)
    if is_free and goal in _SLOWER_PERCENT and (fed or goal == "ram"):
        best_time = max(min(item.time for item in found), fastest_time(offers))
        smallest = _smallest((*alone, *found), _SLOWER_PERCENT[goal] * best_time // 100)
        if planner.fits(smallest.module):
            return smallest.module
    fitting = _first_fitting(found, planner)
    if fitting is None:
        found = _candidates(module, offers, rows_of, planner, _ANY_PERCENT)
        fitting = _first_fitting(found, planner)
    return (fitting or min(found, key=lambda item: item.workspace_bytes)).module


def list_programs(
    module: IRModule, offers: CandidatesPerCall, rows_of: RowsOf, planner: SelectionOracle
) -> tuple[ProgramCandidate, ...]:
    """Programs from the fastest to the one that takes least."""
    goal = str(module.attrs.get("optimize", "balanced"))
    offers = _within_flash(module, dedupe_code_cost(offers, planner.key), goal)
    return _candidates(module, offers, rows_of, planner)


def _within_flash(module: IRModule, offers: CandidatesPerCall, goal: str) -> CandidatesPerCall:
    """The alternatives that calls may take of the flash that there is for them."""
    if "flash_bytes" in module.attrs:
        return fit_flash_budget(offers, int(str(module.attrs["flash_bytes"])))
    return apply_default_flash_budget(module, offers) if goal in _SLOWER_PERCENT else offers


def _candidates(
    module: IRModule,
    offers: CandidatesPerCall,
    rows_of: RowsOf,
    planner: SelectionOracle,
    call_percent: int = _CALL_PERCENT,
) -> tuple[ProgramCandidate, ...]:
    ordered = _ordered(offers, "speed", attrgetter("time"))
    found = ProgramSearch(module, ordered, rows_of, planner.estimate, call_percent).candidates()
    limit = module.attrs.get("flash_bytes")
    return tuple(c for c in found if limit is None or c.image_bytes <= int(str(limit))) or found


def _first_fitting(
    found: Sequence[ProgramCandidate], planner: SelectionOracle
) -> ProgramCandidate | None:
    return next((item for item in found if planner.fits(item.module)), None)


def _smallest(found: Sequence[ProgramCandidate], time_limit: int) -> ProgramCandidate:
    """The one that takes least memory of those that take no more time."""
    fast = [item for item in found if item.time <= time_limit]
    return min(fast, key=lambda item: (item.workspace_bytes, item.time))


# ---- every call as a whole ---------------------------------------------------------------------


def _whole(
    module: IRModule, offers: CandidatesPerCall, planner: SelectionOracle, goal: str
) -> ProgramCandidate:
    """One alternative a call, as the goal wants them."""
    if goal not in _SLOWER_PERCENT:
        ordered = _ordered(offers, goal, attrgetter("time"))
        return whole_call_candidate(module, ordered, tuple(0 for _ in ordered), planner.estimate)
    price = _weighed(offers)
    near = _ordered([(call, _near(found)) for call, found in offers], goal, price)
    found = ProgramSearch(module, near, _no_rows, planner.estimate, _NEAR_PERCENT, price)
    return min(found.candidates(), key=_worth)


def _weighed(offers: CandidatesPerCall) -> CandidateCost:
    """Time and flash, a percent of the one for a percent of the other."""
    chosen = fastest_candidates(offers)
    time = sum(item.time for item in chosen)
    size = max(sum(item.image_bytes for item in chosen), 1)
    return lambda item: item.time + item.image_bytes * time // size


def _near(found: Sequence[LoweringCandidate]) -> tuple[LoweringCandidate, ...]:
    """Those that take not much more time than the fastest."""
    limit = _NEAR_PERCENT * min((item.time for item in found), default=0)
    return tuple(item for item in found if 100 * item.time <= limit)


def _worth(item: ProgramCandidate) -> int:
    return (item.time * item.image_bytes) ** 2 * item.workspace_bytes


def _no_rows(index: int, band: int) -> None:
    """Row kernels of no call."""


def _ordered(offers: CandidatesPerCall, goal: str, price: CandidateCost) -> OrderedCandidates:
    """Each call's alternatives, the one that the goal wants first."""

    def key(item: LoweringCandidate) -> tuple[int, int]:
        if goal == "size":
            return item.image_bytes, item.time
        return price(item), item.scratch_bytes

    return [(call, sorted(found, key=key)) for call, found in offers]
