"""The choice among alternatives: what binds is changed, what does not bind stays first."""

from __future__ import annotations

from collections.abc import Sequence

from firmwright.select.choice import ASKS_MAX, Estimate, Picks, choose


class Recorder:
    """A planner for which a plan takes the most that any call needs, and a little more."""

    def __init__(self, needs: Sequence[Sequence[int]], apart: int = 1000) -> None:
        self.needs, self.apart = needs, apart
        self.asked: list[Picks] = []

    def __call__(self, picks: Picks) -> Estimate:
        self.asked.append(picks)
        own = {call: self.needs[call][pick] for call, pick in enumerate(picks)}
        return Estimate(self.plan(own), own, dict.fromkeys(own, self.apart))

    def plan(self, own: dict[int, int]) -> int:
        return max(own.values())


class Agreeing(Recorder):
    """Neighbours that disagree cost: a plan is only as small as the calls go one way."""

    def plan(self, own: dict[int, int]) -> int:
        ways = [self.needs[call].index(need) for call, need in own.items()]
        return max(own.values()) + 10 * abs(len(ways) - 2 * sum(ways))


def test_only_what_binds_takes_another_alternative() -> None:
    assert choose([2, 2, 2], Recorder([[90, 50], [40, 30], [70, 60]])) == (1, 0, 1)


def test_the_first_alternative_that_suffices_is_taken() -> None:
    assert choose([3, 1], Recorder([[90, 60, 50], [60]])) == (1, 0)


def test_calls_without_a_choice_are_left_alone() -> None:
    assert choose([1, 1], Recorder([[5], [6]])) == (0, 0)
    assert choose([], Recorder([])) == ()


def test_neighbours_come_to_agree() -> None:
    planner = Agreeing([[50, 49]] * 4)
    picks = choose([2] * 4, planner)
    assert sum(picks) == 2


def test_no_plan_is_asked_for_twice_and_not_without_end() -> None:
    planner = Agreeing([[50, 49]] * 40)
    choose([2] * 40, planner)
    assert len(planner.asked) == len(set(planner.asked))
    assert len(planner.asked) <= ASKS_MAX + 80
