"""Strategies propose nothing twice, are reproducible, and are better than random."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from firmwright.extensions.tune.search_strategies import STRATEGIES, SearchSpace
from firmwright.ops.tuning_records import ConfiguredSchedule

CHOICES: tuple[ConfiguredSchedule, ...] = tuple(
    ConfiguredSchedule(rule, (("a", a), ("b", b)))
    for rule, a, b in product(("one", "two"), range(8), range(8))
)
BEST = ConfiguredSchedule("two", (("a", 5), ("b", 3)))


def cost(choice: ConfiguredSchedule) -> int:
    """Return a convex cost around the best choice; schedule one costs twice."""
    (_, a), (_, b) = choice.settings
    return (100 + 10 * ((a - 5) ** 2 + (b - 3) ** 2)) * (
        2 if choice.rule == "one" else 1
    )


def rough(choice: ConfiguredSchedule) -> int:
    """Return a cost that orders configurations well but equates the schedules."""
    return cost(choice) // (2 if choice.rule == "one" else 1) + 3


def search(name: str, trials: int, seed: int = 0) -> Sequence[ConfiguredSchedule]:
    space, seen = SearchSpace(CHOICES, rough), dict[ConfiguredSchedule, int | None]()
    while len(seen) < trials:
        rng = np.random.default_rng([seed, len(seen)])
        proposed = STRATEGIES[name](space, seen, min(8, trials - len(seen)), rng)
        assert 0 < len(proposed) <= 8
        assert not seen.keys() & set(proposed)
        seen |= {
            choice: None if choice.settings[0] == ("a", 7) else cost(choice)
            for choice in proposed
        }
    return list(seen)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_choice_is_proposed_once(name: str) -> None:
    result = search(name, len(CHOICES))
    assert sorted(result) == sorted(CHOICES)
    space = SearchSpace(CHOICES, rough)
    seen = dict.fromkeys(CHOICES, 1)
    assert list(STRATEGIES[name](space, seen, 4, np.random.default_rng(0))) == []


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_same_seed_gives_the_same_search(name: str) -> None:
    assert search(name, 40, seed=3) == search(name, 40, seed=3)


def test_another_seed_gives_another_search() -> None:
    assert search("random", 40, seed=3) != search("random", 40, seed=4)
    assert search("evolutionary", 40, seed=3) != search("evolutionary", 40, seed=4)


def test_evolution_and_model_find_the_best_early() -> None:
    assert BEST in search("model", 12)
    result = [min(map(cost, search("evolutionary", 48, seed))) for seed in range(20)]
    chance = [min(map(cost, search("random", 48, seed))) for seed in range(20)]
    assert sum(result) < sum(chance)
    assert result.count(cost(BEST)) > chance.count(cost(BEST))


def test_model_learns_which_schedule_is_expensive() -> None:
    later = search("model", 40)[16:]
    rules = [choice.rule for choice in later]
    assert rules.count("two") > rules.count("one")


def test_evolution_starts_with_the_best_guess_of_each_schedule() -> None:
    assert search("evolutionary", 8)[:2] == [CHOICES[0], CHOICES[64]]
