"""Reproducible strategies that propose the next kernels of a layer to measure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from firmwright.ir.tuning_records import ConfiguredSchedule

TriedCounts: TypeAlias = Mapping[ConfiguredSchedule, int | None]
"""Counts of tried choices; None for kernels that are wrong or failed."""


@dataclass(frozen=True)
class SearchSpace:
    """The choices of a layer, most promising first, and a function that predicts their counts."""

    choices: tuple[ConfiguredSchedule, ...]
    predicted: Callable[[ConfiguredSchedule], int]

    def untried(self, seen: TriedCounts) -> list[ConfiguredSchedule]:
        return [choice for choice in self.choices if choice not in seen]


Strategy: TypeAlias = Callable[
    [SearchSpace, TriedCounts, int, np.random.Generator], Sequence[ConfiguredSchedule]
]


def propose_random(
    space: SearchSpace, seen: TriedCounts, count: int, rng: np.random.Generator
) -> Sequence[ConfiguredSchedule]:
    untried = space.untried(seen)
    order = rng.permutation(len(untried))
    return [untried[index] for index in order[:count]]


def propose_by_cost_model(
    space: SearchSpace, seen: TriedCounts, count: int, rng: np.random.Generator
) -> Sequence[ConfiguredSchedule]:
    """Propose the choices with the least predicted cost.

    The measured error of a schedule corrects its predictions.
    """
    untried = space.untried(seen)
    corrections = _corrections(space, seen)
    overall = corrections.get("", 1.0)
    costs = {c: space.predicted(c) * corrections.get(c[0], overall) for c in untried}
    return sorted(untried, key=costs.__getitem__)[:count]


def _corrections(space: SearchSpace, seen: TriedCounts) -> dict[str, float]:
    """Return the mean ratio of measured to predicted counts by schedule, and overall under ""."""
    logs: dict[str, list[float]] = {}
    for choice, counted in seen.items():
        if counted:
            ratio = math.log(counted / max(1, space.predicted(choice)))
            logs.setdefault(choice[0], []).append(ratio)
            logs.setdefault("", []).append(ratio)
    return {name: math.exp(math.fsum(ratios) / len(ratios)) for name, ratios in logs.items()}


_PARENTS = 4
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
        guesses = list({choice[0]: choice for choice in reversed(untried)}.values())[::-1]
        seen = dict.fromkeys(guesses)
        return [*guesses, *propose_random(space, seen, count, rng)][:count]
    counted = sorted((n, choice) for choice, n in seen.items() if n is not None)
    parents = [choice for _, choice in counted[:_PARENTS]]
    proposals: list[ConfiguredSchedule] = []
    while len(proposals) < count and untried:
        parent = parents[int(rng.integers(len(parents)))] if parents else None
        near = [] if parent is None else [c for c in untried if _is_neighbor(parent, c)]
        pool = untried if not near or rng.random() < _RANDOM_SHARE else near
        child = pool[int(rng.integers(len(pool)))]
        untried.remove(child)
        proposals.append(child)
    return proposals


def _is_neighbor(a: ConfiguredSchedule, b: ConfiguredSchedule) -> bool:
    return a[0] == b[0] and len({name for name, _ in set(a[1]) ^ set(b[1])}) == 1


STRATEGIES: Mapping[str, Strategy] = {
    "random": propose_random,
    "evolutionary": propose_by_mutation,
    "model": propose_by_cost_model,
}
