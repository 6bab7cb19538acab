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
  and `ram` have a budget for what buys time with constants (select/flash.py).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from firmwright.ir.module import IRModule
from firmwright.ir.tir.nodes import PrimFunc
from firmwright.ir.tir.schedule import Alternative
from firmwright.select.candidates import Candidate, Ordered, Programs, whole
from firmwright.select.choice import Estimate
from firmwright.select.flash import Offers, Price, fastest, shared, time_of, within, within_own
from firmwright.select.segments import RowsOf


@dataclass(frozen=True, slots=True)
class Planner:
    """The pipeline's answers: a quick estimate, and whether a module's plan fits its pools.

    Kernels of equal `key` can become one function.
    """

    estimate: Callable[[IRModule], Estimate]
    fits: Callable[[IRModule], bool]
    key: Callable[[PrimFunc], Hashable] = id


_SLOWER_PERCENT = {"balanced": 105, "ram": 130}
"""Most time of a program that takes least memory, in percent of the fastest.

The fastest is one of whole calls: rows take more flash than these may, and time is bought with it.
"""
_NEAR_PERCENT = 104
"""Most time of a call's alternative that `balanced` considers, in percent of its fastest."""
_CALL_PERCENT = 300
"""Alternatives that cost more than that of a call's fastest wait until nothing else fits."""
_ANY_PERCENT = 1_000_000


def select_module(module: IRModule, offers: Offers, rows_of: RowsOf, planner: Planner) -> IRModule:
    """The module with a kernel for every call. `rows_of` gives a call's row kernels when wanted.

    DoesNotFitError where no choice is within the flash that may be taken.
    """
    goal = str(module.attrs.get("optimize", "balanced"))
    offers = _within_flash(module, shared(offers, planner.key), goal)
    is_free, fed = "ram_bytes" not in module.attrs, module.io.input_rows
    alone = (_whole(module, offers, planner, goal),) if is_free and not fed else ()
    if alone and goal != "ram" and planner.fits(alone[0].module):
        return alone[0].module
    found = _candidates(module, offers, rows_of, planner)
    if is_free and goal in _SLOWER_PERCENT and (fed or goal == "ram"):
        fastest_time = max(min(item.time for item in found), time_of(offers))
        smallest = _smallest((*alone, *found), _SLOWER_PERCENT[goal] * fastest_time // 100)
        if planner.fits(smallest.module):
            return smallest.module
    fitting = _first_fitting(found, planner)
    if fitting is None:
        found = _candidates(module, offers, rows_of, planner, _ANY_PERCENT)
        fitting = _first_fitting(found, planner)
    return (fitting or min(found, key=lambda item: item.workspace_bytes)).module


def programs(
    module: IRModule, offers: Offers, rows_of: RowsOf, planner: Planner
) -> tuple[Candidate, ...]:
    """Programs from the fastest to the one that takes least."""
    goal = str(module.attrs.get("optimize", "balanced"))
    offers = _within_flash(module, shared(offers, planner.key), goal)
    return _candidates(module, offers, rows_of, planner)


def _within_flash(module: IRModule, offers: Offers, goal: str) -> Offers:
    """The alternatives that calls may take of the flash that there is for them."""
    if "flash_bytes" in module.attrs:
        return within(offers, int(str(module.attrs["flash_bytes"])))
    return within_own(module, offers) if goal in _SLOWER_PERCENT else offers


def _candidates(
    module: IRModule,
    offers: Offers,
    rows_of: RowsOf,
    planner: Planner,
    call_percent: int = _CALL_PERCENT,
) -> tuple[Candidate, ...]:
    ordered = _ordered(offers, "speed", attrgetter("time"))
    found = Programs(module, ordered, rows_of, planner.estimate, call_percent).candidates()
    limit = module.attrs.get("flash_bytes")
    return tuple(c for c in found if limit is None or c.image_bytes <= int(str(limit))) or found


def _first_fitting(found: Sequence[Candidate], planner: Planner) -> Candidate | None:
    return next((item for item in found if planner.fits(item.module)), None)


def _smallest(found: Sequence[Candidate], time_limit: int) -> Candidate:
    """The one that takes least memory of those that take no more time."""
    fast = [item for item in found if item.time <= time_limit]
    return min(fast, key=lambda item: (item.workspace_bytes, item.time))


# ---- every call as a whole ---------------------------------------------------------------------


def _whole(module: IRModule, offers: Offers, planner: Planner, goal: str) -> Candidate:
    """One alternative a call, as the goal wants them."""
    if goal not in _SLOWER_PERCENT:
        ordered = _ordered(offers, goal, attrgetter("time"))
        return whole(module, ordered, tuple(0 for _ in ordered), planner.estimate)
    price = _weighed(offers)
    near = _ordered([(call, _near(found)) for call, found in offers], goal, price)
    found = Programs(module, near, _no_rows, planner.estimate, _NEAR_PERCENT, price)
    return min(found.candidates(), key=_worth)


def _weighed(offers: Offers) -> Price:
    """Time and flash, a percent of the one for a percent of the other."""
    chosen = fastest(offers)
    time = sum(item.time for item in chosen)
    size = max(sum(item.image_bytes for item in chosen), 1)
    return lambda item: item.time + item.image_bytes * time // size


def _near(found: Sequence[Alternative]) -> tuple[Alternative, ...]:
    """Those that take not much more time than the fastest."""
    limit = _NEAR_PERCENT * min((item.time for item in found), default=0)
    return tuple(item for item in found if 100 * item.time <= limit)


def _worth(item: Candidate) -> int:
    return (item.time * item.image_bytes) ** 2 * item.workspace_bytes


def _no_rows(index: int, band: int) -> None:
    """Row kernels of no call."""


def _ordered(offers: Offers, goal: str, price: Price) -> Ordered:
    """Each call's alternatives, the one that the goal wants first."""

    def key(item: Alternative) -> tuple[int, int]:
        if goal == "size":
            return item.image_bytes, item.time
        return price(item), item.scratch_bytes

    return [(call, sorted(found, key=key)) for call, found in offers]
