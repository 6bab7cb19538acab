"""What calls need in memory with each of their alternatives, and changes that bring a plan down.

In: for every call its alternatives, best first, and `ask`, which plans one pick for each call. Out:
bytes, by a few trials in which all calls take their first, second, ... alternative, and picks:
calls change theirs, one at a time, while the plan comes closer to what is aimed at, because
neighbours have to agree on a direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

TRIALS_MAX = 24

CandidateIndices: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlanEstimate:
    """What a plan takes, and by the call's index what must be held at its moment."""

    workspace_bytes: int
    call_bytes: Mapping[int, int]


EstimatePlan: TypeAlias = Callable[[CandidateIndices], PlanEstimate]


def memory_need_per_candidate(widths: Sequence[int], ask: EstimatePlan) -> list[list[int]]:
    """For each call and alternative the bytes that memory must hold at the call's moment."""
    return _needs(widths, [ask(picks) for picks in _trials(widths)])


def _trials(widths: Sequence[int]) -> list[CandidateIndices]:
    """All calls at their first alternative, at their second, ..."""
    return [
        tuple(min(index, width - 1) if width else 0 for width in widths)
        for index in range(max(1, *widths) if widths else 0)
    ]


def _needs(widths: Sequence[int], estimates: Sequence[PlanEstimate]) -> list[list[int]]:
    return [
        [estimates[index].call_bytes.get(call, 0) for index in range(max(width, 1))]
        for call, width in enumerate(widths)
    ]


def refine_choice(
    picks: CandidateIndices,
    goal: int,
    needs: Sequence[Sequence[int]],
    calls: Sequence[int],
    ask: EstimatePlan,
) -> CandidateIndices:
    """`picks` with changes of `calls` that bring the plan closer to `goal`, after a few trials.

    `needs` has what each of a call's alternatives needs, of those that may be taken.
    """
    return _ChoiceRefinement(ask).descend(picks, goal, needs, calls)


@dataclass
class _ChoiceRefinement:
    """Asks, remembering the answers; stops changing things once it has asked enough."""

    planner: EstimatePlan
    asks_max: int = TRIALS_MAX
    known: dict[CandidateIndices, PlanEstimate] = field(default_factory=dict)

    def ask(self, picks: CandidateIndices) -> PlanEstimate:
        if picks not in self.known:
            self.known[picks] = self.planner(picks)
        return self.known[picks]

    def bytes(self, picks: CandidateIndices) -> int:
        return self.ask(picks).workspace_bytes

    def descend(
        self,
        picks: CandidateIndices,
        goal: int,
        needs: Sequence[Sequence[int]],
        binding: Sequence[int],
    ) -> CandidateIndices:
        """Changes of one call that make the plan smaller, until there are none."""
        changed = True
        while changed and self.bytes(picks) > goal:
            changed = False
            for call in binding:
                for trial in _changes(picks, call, len(needs[call])):
                    if len(self.known) >= self.asks_max:
                        return picks
                    if needs[call][trial[call]] >= self.bytes(picks):
                        continue
                    if self.bytes(trial) < self.bytes(picks):
                        picks, changed = trial, True
        return picks


def _changes(picks: CandidateIndices, call: int, width: int) -> Iterator[CandidateIndices]:
    """`picks` with another of the first `width` alternatives for `call`."""
    for index in range(width):
        if index != picks[call]:
            yield (*picks[:call], index, *picks[call + 1 :])
