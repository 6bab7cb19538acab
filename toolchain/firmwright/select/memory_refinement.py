"""Memory need of each kernel candidate, and refinement of choices by trial plans.

Only a plan reveals whether adjacent kernels have compatible directions and can share memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from firmwright.select import policy

CandidateIndices: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlanEstimate:
    """Workspace of a plan, and the live bytes at each call, by call index."""

    workspace_bytes: int
    call_bytes: Mapping[int, int]


EstimatePlan: TypeAlias = Callable[[CandidateIndices], PlanEstimate]


def memory_need_per_candidate(
    widths: Sequence[int], estimate_plan: EstimatePlan
) -> list[list[int]]:
    """Return for each call and candidate the bytes that must be live at the call."""
    return _needs(widths, [estimate_plan(picks) for picks in _trials(widths)])


def _trials(widths: Sequence[int]) -> list[CandidateIndices]:
    """Return trial choices: all calls at their first candidate, all at their second, and so on."""
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
    estimate_plan: EstimatePlan,
) -> CandidateIndices:
    """Change the choices of `calls` in `picks` to bring the plan closer to `goal`.

    `needs` has the bytes of each permitted candidate of each call. The number of trials is limited.
    """
    return _ChoiceRefinement(estimate_plan).descend(picks, goal, needs, calls)


@dataclass
class _ChoiceRefinement:
    estimate_plan: EstimatePlan
    trials_max: int = policy.TRIAL_PLANS_MAX
    estimates: dict[CandidateIndices, PlanEstimate] = field(default_factory=dict)

    def estimate(self, picks: CandidateIndices) -> PlanEstimate:
        if picks not in self.estimates:
            self.estimates[picks] = self.estimate_plan(picks)
        return self.estimates[picks]

    def bytes(self, picks: CandidateIndices) -> int:
        return self.estimate(picks).workspace_bytes

    def descend(
        self,
        picks: CandidateIndices,
        goal: int,
        needs: Sequence[Sequence[int]],
        binding: Sequence[int],
    ) -> CandidateIndices:
        changed = True
        while changed and self.bytes(picks) > goal:
            changed = False
            for call in binding:
                for trial in _changes(picks, call, len(needs[call])):
                    if len(self.estimates) >= self.trials_max:
                        return picks
                    if needs[call][trial[call]] >= self.bytes(picks):
                        continue
                    if self.bytes(trial) < self.bytes(picks):
                        picks, changed = trial, True
        return picks


def _changes(picks: CandidateIndices, call: int, width: int) -> Iterator[CandidateIndices]:
    for index in range(width):
        if index != picks[call]:
            yield (*picks[:call], index, *picks[call + 1 :])
