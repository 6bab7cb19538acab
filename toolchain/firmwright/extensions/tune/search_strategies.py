"""Strategies of a schedule search, which propose a layer's next kernels to measure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from firmwright.ops.tuning_records import ConfiguredSchedule

TriedCounts: TypeAlias = Mapping[ConfiguredSchedule, int | None]
"""Counts of tried choices; None for kernels that are wrong or failed."""


@dataclass(frozen=True)
class SearchSpace:
    """The choices of a layer, most promising first, and a prediction of counts."""

    choices: tuple[ConfiguredSchedule, ...]
    predicted: Callable[[ConfiguredSchedule], int]

    def untried(self, seen: TriedCounts) -> list[ConfiguredSchedule]:
        return [choice for choice in self.choices if choice not in seen]


Strategy: TypeAlias = Callable[
    [SearchSpace, TriedCounts, int, np.random.Generator], Sequence[ConfiguredSchedule]
]
"""Proposes a number of untried choices."""


def propose_random(
    space: SearchSpace, seen: TriedCounts, count: int, rng: np.random.Generator
) -> Sequence[ConfiguredSchedule]:
    """Propose choices at random."""
    untried = space.untried(seen)
    order = rng.permutation(len(untried))
    return [untried[index] for index in order[:count]]


def propose_by_cost_model(
    space: SearchSpace, seen: TriedCounts, count: int, rng: np.random.Generator
) -> Sequence[ConfiguredSchedule]:
    """Propose choices by predicted cost, corrected by measured errors by schedule."""
    corrections = _corrections(space, seen)
    overall = corrections.get("", 1.0)

    def cost(choice: ConfiguredSchedule) -> float:
        return space.predicted(choice) * corrections.get(choice.rule, overall)

    return sorted(space.untried(seen), key=cost)[:count]


def _corrections(space: SearchSpace, seen: TriedCounts) -> dict[str, float]:
    """Return the mean ratio of measured to predicted counts by schedule; "" is overall.

    The mean is geometric, since a prediction that is half of the count is as wrong as
    one that is twice the count.
    """
    logs: dict[str, list[float]] = {}
    for choice, counted in seen.items():
        if counted:
            ratio = math.log(counted / max(1, space.predicted(choice)))
            logs.setdefault(choice.rule, []).append(ratio)
            logs.setdefault("", []).append(ratio)
    corrections: dict[str, float] = {}
    for name, ratios in logs.items():
        corrections[name] = math.exp(math.fsum(ratios) / len(ratios))
    return corrections


_PARENTS = 4
"""Number of best choices that are mutated."""
_RANDOM_SHARE = 0.2
"""Probability that a proposal is random although mutations are available."""


def propose_by_mutation(
    space: SearchSpace, seen: TriedCounts, count: int, rng: np.random.Generator
) -> Sequence[ConfiguredSchedule]:
    """Propose mutations of the best choices so far, each with one changed setting.

    The first call proposes the best guess of each schedule, and random choices.
    """
    untried = space.untried(seen)
    if not seen:
        guesses = _first_of_each_schedule(untried)
        others = propose_random(space, dict.fromkeys(guesses), count, rng)
        return [*guesses, *others][:count]
    counted = sorted((n, choice) for choice, n in seen.items() if n is not None)
    parents = [choice for _, choice in counted[:_PARENTS]]
    proposals: list[ConfiguredSchedule] = []
    while len(proposals) < count and untried:
        near: list[ConfiguredSchedule] = []
        if parents:
            parent = parents[int(rng.integers(len(parents)))]
            near = [choice for choice in untried if _is_neighbor(parent, choice)]
        # The generator is asked only if there are neighbors; results depend on its
        # sequence.
        is_random = not near or rng.random() < _RANDOM_SHARE
        candidates = untried if is_random else near
        child = candidates[int(rng.integers(len(candidates)))]
        untried.remove(child)
        proposals.append(child)
    return proposals


def _first_of_each_schedule(
    choices: Sequence[ConfiguredSchedule],
) -> list[ConfiguredSchedule]:
    """Return each schedule's first choice, in the order in which their choices end."""
    by_schedule: dict[str, ConfiguredSchedule] = {}
    for choice in reversed(choices):
        by_schedule[choice.rule] = choice
    return list(by_schedule.values())[::-1]


def _is_neighbor(a: ConfiguredSchedule, b: ConfiguredSchedule) -> bool:
    """Return whether two choices of one schedule differ in one setting."""
    changed = {name for name, _ in set(a.settings) ^ set(b.settings)}
    return a.rule == b.rule and len(changed) == 1


STRATEGIES: Mapping[str, Strategy] = {
    "random": propose_random,
    "evolutionary": propose_by_mutation,
    "model": propose_by_cost_model,
}
