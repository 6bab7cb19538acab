"""Flash budget of constants and code, divided among the calls by a knapsack solver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Protocol, TypeAlias

from firmwright.base.errors import DoesNotFitError
from firmwright.choose import thresholds
from firmwright.ir import tir
from firmwright.ir.graph.nodes import Call
from firmwright.ir.module import IRModule
from firmwright.ops.schedule import LoweringCandidate

CallCandidates: TypeAlias = tuple[Call, Sequence[LoweringCandidate]]
CandidatesPerCall: TypeAlias = Sequence[CallCandidates]


class PricedCandidate(Protocol):
    """A candidate of a call or a program: its time, and its image in bytes."""

    @property
    def time(self) -> int: ...

    @property
    def image_bytes(self) -> int: ...


CandidateCost: TypeAlias = Callable[[PricedCandidate], int]


@dataclass(frozen=True, slots=True)
class CodeKey:
    """The code that a kernel shares with others, and the numbers in which they differ.

    A number is its value and how often a call uses it.
    """

    code: Hashable
    numbers: tuple[tuple[Hashable, int], ...] = ()


KeyOf: TypeAlias = Callable[[tir.PrimFunc], CodeKey]


def dedupe_code_cost(
    candidates_per_call: CandidatesPerCall, key: KeyOf
) -> CandidatesPerCall:
    """Divide code bytes among the calls that can share it; add the bytes of a call."""
    codes_per_call: list[list[Hashable]] = []
    sharers: Counter[Hashable] = Counter()
    for _, candidates in candidates_per_call:
        codes = [key(item.function).code for item in candidates]
        codes_per_call.append(codes)
        sharers.update(set(codes))
    divided: list[CallCandidates] = []
    rows = zip(candidates_per_call, codes_per_call, strict=True)
    for (call, candidates), codes in rows:
        shared: list[LoweringCandidate] = []
        for item, code in zip(candidates, codes, strict=True):
            code_bytes = item.code_bytes // sharers[code] + thresholds.CALL_CODE_BYTES
            shared.append(replace(item, code_bytes=code_bytes))
        divided.append((call, tuple(shared)))
    return divided


def apply_default_flash_budget(
    module: IRModule, candidates_per_call: CandidatesPerCall
) -> CandidatesPerCall:
    """Apply the default budget, so that flash is not spent on small gains in time.

    Each call keeps the candidates that fit its share of the budget, with a few bytes of
    slack. If no program fits, or the inexpensive kernels alone are faster, only
    expensive kernels are dropped.
    """
    names: set[str] = set()
    for call, _ in candidates_per_call:
        for value in call.inputs:
            if value is not None and value.constant is not None:
                names.add(value.constant)
    constants_bytes = sum(module.constants[name].size_bytes for name in names)
    budget_bytes = constants_bytes * thresholds.DEFAULT_FLASH_PERCENT // 100
    cheap: list[CallCandidates] = []
    for call, candidates in candidates_per_call:
        cheap.append((call, tuple(_inexpensive(candidates))))
    slack_bytes = thresholds.FLASH_SLACK_BYTES
    try:
        limited = fit_flash_budget(candidates_per_call, budget_bytes, slack_bytes)
    except DoesNotFitError:
        return cheap
    cheap_bytes = 0
    for item in fastest_candidates(cheap):
        cheap_bytes += item.image_bytes
    if cheap_bytes <= budget_bytes:
        return limited
    return min(cheap, limited, key=fastest_time)


def fastest_time(candidates_per_call: CandidatesPerCall) -> int:
    """Return the time of the program of the fastest candidates."""
    return sum(item.time for item in fastest_candidates(candidates_per_call))


def fastest_candidates(
    candidates_per_call: CandidatesPerCall,
) -> list[LoweringCandidate]:
    """Return the fastest candidate of each call that has any."""
    fastest: list[LoweringCandidate] = []
    for _, candidates in candidates_per_call:
        if candidates:
            fastest.append(min(candidates, key=attrgetter("time")))
    return fastest


def _inexpensive(candidates: Sequence[LoweringCandidate]) -> list[LoweringCandidate]:
    """Return the candidates whose constants are not much larger than the smallest."""
    least = min((item.flash_bytes for item in candidates), default=0)
    limit = max(thresholds.EXPENSIVE_TIMES * least, least + thresholds.EXPENSIVE_BYTES)
    return [item for item in candidates if item.flash_bytes <= limit]


def fit_flash_budget(
    candidates_per_call: CandidatesPerCall,
    budget_bytes: int,
    slack_bytes: int = 0,
    saved_bytes: int | None = None,
) -> CandidatesPerCall:
    """Limit each call's candidates, keeping the fastest program within the budget.

    The bytes that this program leaves unused are shared among the calls; each call may
    use `slack_bytes` more. Coding of weights saves `saved_bytes` later (None: it is not
    requested). Raises DoesNotFitError if no program fits the budget.
    """
    budget_bytes += saved_bytes or 0
    sizes: list[list[int]] = []
    times: list[list[int]] = []
    for _, candidates in candidates_per_call:
        if candidates:
            sizes.append([item.image_bytes for item in candidates])
            times.append([item.time for item in candidates])
    picks = solve_knapsack(times, sizes, budget_bytes)
    if picks is None:
        least_bytes = sum(map(min, sizes))
        raise budget_error(least_bytes, budget_bytes, saved_bytes)
    chosen_sizes = [own[pick] for own, pick in zip(sizes, picks, strict=True)]
    unused_bytes = budget_bytes - sum(chosen_sizes)
    spare_bytes = unused_bytes // max(len(chosen_sizes), 1) + slack_bytes
    remaining_sizes = iter(chosen_sizes)
    allowed: list[CallCandidates] = []
    for call, candidates in candidates_per_call:
        if candidates:
            limit = next(remaining_sizes) + spare_bytes
            candidates = tuple(item for item in candidates if item.image_bytes <= limit)
        allowed.append((call, candidates))
    return allowed


def budget_error(
    least_bytes: int, budget_bytes: int, saved_bytes: int | None
) -> DoesNotFitError:
    """Return the error; both sizes include the `saved_bytes` that coding removes."""
    least_coded_bytes = least_bytes - (saved_bytes or 0)
    most_coded_bytes = budget_bytes - (saved_bytes or 0)
    option = "--compress-weights, " if saved_bytes is None else ""
    return DoesNotFitError(
        f"code and constants of the model take at least {least_coded_bytes} bytes of "
        f"flash, as predicted, and may take {most_coded_bytes}.",
        hint=f"--flash {least_coded_bytes}, {option}or constants in a --const-pool.",
    )


@dataclass(frozen=True, slots=True)
class _KnapsackState:
    """Choices for the first calls: total size and time, the state before the last."""

    size: int
    time: int
    pick: int = 0
    before: _KnapsackState | None = None


def solve_knapsack(
    times: Sequence[Sequence[int]], sizes: Sequence[Sequence[int]], budget: int
) -> list[int] | None:
    """Return the choices with the least total time within the budget, or None.

    `times` and `sizes` have a list of options for each call. The states after k calls
    are the best combinations of their options: more size for less time. Only the
    fastest of states with nearly equal sizes is kept, so the result fits the budget but
    may be slightly slower than the optimum.
    """
    step = max(budget // thresholds.KNAPSACK_STATES_MAX, 1)
    needed_later = sum(map(min, sizes))
    states = [_KnapsackState(0, 0)]
    for own_times, own_sizes in zip(times, sizes, strict=True):
        needed_later -= min(own_sizes)
        room = budget - needed_later
        options = list(zip(own_times, own_sizes, strict=True))
        grown: list[_KnapsackState] = []
        for state in states:
            for pick, (time, size) in enumerate(options):
                new_size, new_time = state.size + size, state.time + time
                if new_size <= room:
                    grown.append(_KnapsackState(new_size, new_time, pick, state))
        states = _prune_states(grown, step)
    if not states:
        return None
    picks: list[int] = []
    state = min(states, key=attrgetter("time"))
    while state.before is not None:
        picks.append(state.pick)
        state = state.before
    picks.reverse()
    return picks


def _prune_states(states: Sequence[_KnapsackState], step: int) -> list[_KnapsackState]:
    """Return the states that no smaller one beats in time, one for each `step` of size.

    The first state, the smallest, is always kept, so that the remaining calls have most
    room.
    """
    front: list[_KnapsackState] = []
    for state in sorted(states, key=attrgetter("size", "time")):
        if front and state.time >= front[-1].time:
            continue
        if len(front) > 1 and state.size // step == front[-1].size // step:
            front.pop()
        front.append(state)
    return front
