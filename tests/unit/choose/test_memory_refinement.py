"""Trial plans for the needs of calls, and changes by which adjacent calls agree."""

from __future__ import annotations

from collections.abc import Sequence

from firmwright.choose import thresholds
from firmwright.choose.program_search import (
    CandidateIndices,
    PlanEstimate,
    memory_need_per_candidate,
    refine_choice,
)


class Recorder:
    """A planner with plans slightly larger than the largest need of a call."""

    def __init__(self, needs: Sequence[Sequence[int]]) -> None:
        self.needs = needs
        self.asked: list[CandidateIndices] = []

    def __call__(self, picks: CandidateIndices) -> PlanEstimate:
        self.asked.append(picks)
        own = {call: self.needs[call][pick] for call, pick in enumerate(picks)}
        return PlanEstimate(self.plan(own), own)

    def plan(self, own: dict[int, int]) -> int:
        return max(own.values())


class Agreeing(Recorder):
    """A planner in which adjacent calls with different directions cost memory."""

    def plan(self, own: dict[int, int]) -> int:
        ways = [self.needs[call].index(need) for call, need in own.items()]
        return max(own.values()) + 10 * abs(len(ways) - 2 * sum(ways))


def test_trial_plans_give_the_need_of_every_candidate() -> None:
    needs = [[90, 50], [40], [70, 60, 55]]
    planner = Recorder(needs)
    assert memory_need_per_candidate([2, 1, 3], planner) == needs
    assert planner.asked == [(0, 0, 0), (1, 0, 1), (1, 0, 2)]


def test_call_without_candidates_has_the_need_of_the_trials() -> None:
    assert memory_need_per_candidate([], Recorder([])) == []
    assert memory_need_per_candidate([1, 0], Recorder([[5], [6]])) == [[5], [6]]


def test_adjacent_calls_agree_on_a_direction() -> None:
    needs = [[50, 49]] * 4
    picks = refine_choice((0,) * 4, 49, needs, range(4), Agreeing(needs))
    assert sum(picks) == 2


def test_only_permitted_calls_change() -> None:
    needs = [[90, 50], [80, 40], [70, 60]]
    assert refine_choice((0, 0, 0), 40, needs, [0, 1], Recorder(needs)) == (1, 1, 0)


def test_plans_are_memoized_and_limited() -> None:
    needs = [[50, 49]] * 40
    planner = Agreeing(needs)
    refine_choice((0,) * 40, 0, needs, range(40), planner)
    assert len(planner.asked) == len(set(planner.asked)) <= thresholds.TRIAL_PLANS_MAX
