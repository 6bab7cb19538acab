"""The trials that tell what calls need, and the changes by which neighbours come to agree."""

from __future__ import annotations

from collections.abc import Sequence

from firmwright.select import policy
from firmwright.select.memory_refinement import (
    CandidateIndices,
    PlanEstimate,
    memory_need_per_candidate,
    refine_choice,
)


class Recorder:
    """A planner for which a plan takes the most that any call needs, and a little more."""

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
    """Neighbours that disagree cost: a plan is only as small as the calls go one way."""

    def plan(self, own: dict[int, int]) -> int:
        ways = [self.needs[call].index(need) for call, need in own.items()]
        return max(own.values()) + 10 * abs(len(ways) - 2 * sum(ways))


def test_a_few_trials_tell_what_every_alternative_needs() -> None:
    needs = [[90, 50], [40], [70, 60, 55]]
    planner = Recorder(needs)
    assert memory_need_per_candidate([2, 1, 3], planner) == needs
    assert planner.asked == [(0, 0, 0), (1, 0, 1), (1, 0, 2)]


def test_a_call_without_alternatives_needs_what_the_trials_say() -> None:
    assert memory_need_per_candidate([], Recorder([])) == []
    assert memory_need_per_candidate([1, 0], Recorder([[5], [6]])) == [[5], [6]]


def test_neighbours_come_to_agree() -> None:
    needs = [[50, 49]] * 4
    picks = refine_choice((0,) * 4, 49, needs, range(4), Agreeing(needs))
    assert sum(picks) == 2


def test_only_calls_that_may_change_do() -> None:
    needs = [[90, 50], [80, 40], [70, 60]]
    assert refine_choice((0, 0, 0), 40, needs, [0, 1], Recorder(needs)) == (1, 1, 0)


def test_no_plan_is_asked_for_twice_and_not_without_end() -> None:
    needs = [[50, 49]] * 40
    planner = Agreeing(needs)
    refine_choice((0,) * 40, 0, needs, range(40), planner)
    assert len(planner.asked) == len(set(planner.asked)) <= policy.TRIAL_PLANS_MAX
