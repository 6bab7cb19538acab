"""Flash budget of constants and predicted code, divided among the calls by a knapsack solver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, TypeAlias

from firmwright.base.errors import DoesNotFitError
from firmwright.choose import thresholds
from firmwright.ir import tir
from firmwright.ir.graph.nodes import Call
from firmwright.ir.module import IRModule
from firmwright.ops.schedule import LoweringCandidate

CallCandidates: TypeAlias = tuple[Call, Sequence[LoweringCandidate]]
CandidatesPerCall: TypeAlias = Sequence[CallCandidates]
CandidateCost: TypeAlias = Callable[[Any], int]
"""The cost of a candidate of a call, or of a program."""


@dataclass(frozen=True, slots=True)
class CodeKey:
    """The code that a kernel shares with others, and the numbers in which they differ.

    A number is its value and how often a call uses it.
    """

    code: Hashable
    numbers: tuple[tuple[Hashable, int], ...] = ()


KeyOf: TypeAlias = Callable[[tir.PrimFunc], CodeKey]


def dedupe_code_cost(candidates_per_call: CandidatesPerCall, key: KeyOf) -> CandidatesPerCall:
    """Divide each kernel's code bytes among the calls that can share it, and add the call's own."""
    keys = [
        [key(item.function).code for item in candidates] for _, candidates in candidates_per_call
    ]
    sharers = Counter(one for own in keys for one in set(own))

    def share(item: LoweringCandidate, one: Hashable) -> LoweringCandidate:
        own_bytes = item.code_bytes // sharers[one]
        return replace(item, code_bytes=own_bytes + thresholds.CALL_CODE_BYTES)

    return [
        (call, tuple(map(share, candidates, own)))
        for (call, candidates), own in zip(candidates_per_call, keys, strict=True)
    ]


def apply_default_flash_budget(
    module: IRModule, candidates_per_call: CandidatesPerCall
) -> CandidatesPerCall:
    """Apply the default budget, so that flash is not spent on small gains in time.

    Each call keeps the candidates that fit its share of the budget, with a few bytes of slack. If
    no program fits, or the inexpensive kernels alone are faster, only expensive kernels are
    dropped.
    """
    names = {
        value.constant
        for call, _ in candidates_per_call
        for value in call.inputs
        if value is not None and value.constant is not None
    }
    constants_bytes = sum(module.constants[name].size_bytes for name in names)
    budget_bytes = constants_bytes * thresholds.DEFAULT_FLASH_PERCENT // 100
    cheap = [(call, tuple(_inexpensive(candidates))) for call, candidates in candidates_per_call]
    try:
        limited = fit_flash_budget(candidates_per_call, budget_bytes, thresholds.FLASH_SLACK_BYTES)
    except DoesNotFitError:
        return cheap
    if sum(item.image_bytes for item in fastest_candidates(cheap)) <= budget_bytes:
        return limited
    return min(cheap, limited, key=fastest_time)


def fastest_time(candidates_per_call: CandidatesPerCall) -> int:
    return sum(item.time for item in fastest_candidates(candidates_per_call))


def fastest_candidates(candidates_per_call: CandidatesPerCall) -> list[LoweringCandidate]:
    non_empty = [candidates for _, candidates in candidates_per_call if candidates]
    return [min(candidates, key=attrgetter("time")) for candidates in non_empty]


def _inexpensive(candidates: Sequence[LoweringCandidate]) -> list[LoweringCandidate]:
    least = min((item.flash_bytes for item in candidates), default=0)
    limit = max(thresholds.EXPENSIVE_TIMES * least, least + thresholds.EXPENSIVE_BYTES)
    return [item for item in candidates if item.flash_bytes <= limit]


def fit_flash_budget(
    candidates_per_call: CandidatesPerCall,
    budget_bytes: int,
    slack_bytes: int = 0,
    saved_bytes: int | None = None,
) -> CandidatesPerCall:
    """Limit each call's candidates so that the fastest program within the budget is among them.

    The bytes that this program leaves unused are shared among the calls; each call may use
    `slack_bytes` more. Coding of weights saves `saved_bytes` later (None: it is not requested).
    Raises DoesNotFitError if no program fits the budget.
    """
    budget_bytes += saved_bytes or 0
    non_empty = [candidates for _, candidates in candidates_per_call if candidates]
    sizes = [[item.image_bytes for item in candidates] for candidates in non_empty]
    times = [[item.time for item in candidates] for candidates in non_empty]
    picks = solve_knapsack(times, sizes, budget_bytes)
    if picks is None:
        raise budget_error(sum(min(own) for own in sizes), budget_bytes, saved_bytes)
    chosen_sizes = [own[pick] for own, pick in zip(sizes, picks, strict=True)]
    spare_bytes = (budget_bytes - sum(chosen_sizes)) // max(len(chosen_sizes), 1) + slack_bytes
    limits = iter(chosen_sizes)
    allowed = []
    for call, candidates in candidates_per_call:
        limit = next(limits) + spare_bytes if candidates else 0
        allowed.append((call, tuple(item for item in candidates if item.image_bytes <= limit)))
    return allowed


def budget_error(least_bytes: int, budget_bytes: int, saved_bytes: int | None) -> DoesNotFitError:
    """Return the error for sizes before `saved_bytes` are saved; see `fit_flash_budget`."""
    least, most = (size - (saved_bytes or 0) for size in (least_bytes, budget_bytes))
    option = "--compress-weights, " if saved_bytes is None else ""
    return DoesNotFitError(
        f"code and constants of the model take at least {least} bytes of flash, as predicted, and "
        f"may take {most}.",
        hint=f"--flash {least}, {option}or constants in a --const-pool.",
    )


@dataclass(frozen=True, slots=True)
class _KnapsackState:
    """Choices for the first calls: total size and time, and the state before the last choice."""

    size: int
    time: int
    pick: int = 0
    before: _KnapsackState | None = None


def solve_knapsack(
    times: Sequence[Sequence[int]], sizes: Sequence[Sequence[int]], budget: int
) -> list[int] | None:
    """Return the choices with the least total time within the budget, or None.

    Only the fastest of states with nearly equal sizes is kept, so the result fits the budget but
    may be slightly slower than the optimum.
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
        states = _prune_states(grown, max(budget // thresholds.KNAPSACK_STATES_MAX, 1))
    if not states:
        return None
    picks: list[int] = []
    state = min(states, key=attrgetter("time"))
    while state.before is not None:
        picks.append(state.pick)
        state = state.before
    return picks[::-1]


def _prune_states(states: Sequence[_KnapsackState], step: int) -> list[_KnapsackState]:
    front: list[_KnapsackState] = []
    for state in sorted(states, key=lambda item: (item.size, item.time)):
        if front and state.time >= front[-1].time:
            continue
        if len(front) > 1 and state.size // step == front[-1].size // step:
            front.pop()
        front.append(state)
    return front
