"""What the calls of a program may take of flash: a knapsack over calls.

In: the alternatives of every call and a budget of bytes, for constants and predicted code together.
Out: the alternatives that each call may take, so that the fastest of them are the fastest program
within the budget and no choice among them is outside of it. Kernels that can be one function share
its code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TypeAlias

from firmwright.base.errors import DoesNotFitError
from firmwright.ir import tir
from firmwright.ir.graph.nodes import Call
from firmwright.ir.module import IRModule
from firmwright.ir.tir.schedule import LoweringCandidate

CallCandidates: TypeAlias = tuple[Call, tuple[LoweringCandidate, ...]]
CandidatesPerCall: TypeAlias = Sequence[CallCandidates]

_OWN_PERCENT = 135
"""Flash within which constants may buy time, in percent of those that the model file has."""
_DEAR_TIMES, _DEAR_BYTES = 2, 2048
"""Dear is what takes that many times the constants of a call's leanest, and so many bytes more."""
_SLACK_BYTES = 32
_CALL_BYTES = 20
"""Code in the AOT main for a call."""
_STATES_MAX = 2048
"""Sums of sizes that the knapsack tells apart."""

CandidateCost: TypeAlias = Callable[[LoweringCandidate], int]


def dedupe_code_cost(
    offers: CandidatesPerCall, key: Callable[[tir.PrimFunc], Hashable]
) -> CandidatesPerCall:
    """`offers` with the code of each kernel divided among the calls that can have it in common."""
    keys = [[key(item.function) for item in found] for _, found in offers]
    twins = Counter(one for own in keys for one in set(own))
    return [
        (call, tuple(_share(item, twins[one]) for item, one in zip(found, own, strict=True)))
        for (call, found), own in zip(offers, keys, strict=True)
    ]


def _share(item: LoweringCandidate, twins: int) -> LoweringCandidate:
    return replace(item, code_bytes=item.code_bytes // twins + _CALL_BYTES)


def apply_default_flash_budget(module: IRModule, offers: CandidatesPerCall) -> CandidatesPerCall:
    """What calls may take where nobody gave a budget: time is bought with constants within reason.

    The budget is in percent of the constants that the model file has. Where kernels that are not
    dear make a faster program, or nothing is within the budget, nothing is bought. A call may go
    beyond its share by a few bytes, as its kernel in the other direction does.
    """
    names = {
        value.constant
        for call, _ in offers
        for value in call.inputs
        if value is not None and value.constant is not None
    }
    own = sum(module.constants[name].size_bytes for name in names) * _OWN_PERCENT // 100
    cheap = [(call, tuple(_cheap(found))) for call, found in offers]
    try:
        bought = fit_flash_budget(offers, own, _SLACK_BYTES)
    except DoesNotFitError:
        return cheap
    return min(cheap, bought, key=fastest_time) if _size(cheap) > own else bought


def fastest_time(offers: CandidatesPerCall) -> int:
    """The time of the fastest program."""
    return sum(item.time for item in fastest_candidates(offers))


def _size(offers: CandidatesPerCall) -> int:
    return sum(item.image_bytes for item in fastest_candidates(offers))


def fastest_candidates(offers: CandidatesPerCall) -> list[LoweringCandidate]:
    """Of each call the fastest alternative."""
    return [min(found, key=attrgetter("time")) for _, found in offers if found]


def _cheap(found: Sequence[LoweringCandidate]) -> list[LoweringCandidate]:
    least = min((item.flash_bytes for item in found), default=0)
    limit = max(_DEAR_TIMES * least, least + _DEAR_BYTES)
    return [item for item in found if item.flash_bytes <= limit]


def fit_flash_budget(
    offers: CandidatesPerCall, budget_bytes: int, slack_bytes: int = 0
) -> CandidatesPerCall:
    """What each call may take so that the fastest program within the budget is among it.

    What that program leaves of the budget is for all calls alike, and `slack_bytes` beside it.
    DoesNotFitError where there is no program within the budget.
    """
    called = [found for _, found in offers if found]
    sizes = [[item.image_bytes for item in found] for found in called]
    picks = solve_knapsack([[item.time for item in found] for found in called], sizes, budget_bytes)
    if picks is None:
        least = sum(min(own) for own in sizes)
        raise DoesNotFitError(
            f"code and constants of the model take at least {least} bytes of flash, as predicted, "
            f"and may take {budget_bytes}.",
            hint=f"--flash {least}, or constants in other memory with --const-pool.",
        )
    taken = [own[pick] for own, pick in zip(sizes, picks, strict=True)]
    left = (budget_bytes - sum(taken)) // max(len(taken), 1) + slack_bytes
    limits = iter(taken)
    allowed = []
    for call, found in offers:
        limit = next(limits) + left if found else 0
        allowed.append((call, tuple(item for item in found if item.image_bytes <= limit)))
    return allowed


@dataclass(frozen=True, slots=True)
class _KnapsackState:
    """Picks for the first calls: what they take, and the state before the last pick."""

    size: int
    time: int
    pick: int = 0
    before: _KnapsackState | None = None


def solve_knapsack(
    times: Sequence[Sequence[int]], sizes: Sequence[Sequence[int]], budget: int
) -> list[int] | None:
    """Which of its alternatives each takes so that all fit and least time is spent, or None.

    Sums that are nearly the same are one state of the search, which keeps the fastest: the answer
    is within the budget always, and may miss what a two-thousandth of the budget would buy.
    """
    least = [min(own) for own in sizes]
    states = [_KnapsackState(0, 0)]
    for index, options in enumerate(zip(times, sizes, strict=True)):
        room = budget - sum(least[index + 1 :])
        grown = [
            _KnapsackState(state.size + size, state.time + time, pick, state)
            for state in states
            for pick, (time, size) in enumerate(zip(*options, strict=True))
            if state.size + size <= room
        ]
        states = _unbeaten(grown, max(budget // _STATES_MAX, 1))
    return _traced(min(states, key=lambda state: state.time)) if states else None


def _unbeaten(states: Sequence[_KnapsackState], step: int) -> list[_KnapsackState]:
    """Those that none of at most their size beats, and one of each step of sizes."""
    kept: list[_KnapsackState] = []
    for state in sorted(states, key=lambda item: (item.size, item.time)):
        if kept and state.time >= kept[-1].time:
            continue
        if len(kept) > 1 and state.size // step == kept[-1].size // step:
            kept.pop()
        kept.append(state)
    return kept


def _traced(state: _KnapsackState) -> list[int]:
    picks: list[int] = []
    while state.before is not None:
        picks.insert(0, state.pick)
        state = state.before
    return picks
