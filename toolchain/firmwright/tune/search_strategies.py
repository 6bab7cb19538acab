"""Which kernels of a layer to try next: three ways, one signature.

In: the space of a layer, what is known of it so far, how many to propose, random numbers. Out: that
many choices that nobody tried, or fewer if there are no more. Same in, same out: a search that
goes on after a kill proposes what it had proposed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from firmwright.ir.tuning_records import ConfiguredSchedule

TriedCounts: TypeAlias = Mapping[ConfiguredSchedule, int | None]
"""Counts of what was tried; None where a kernel is wrong or failed."""


@dataclass(frozen=True)
class SearchSpace:
    """The choices of a layer, best guess first; `predicted` is the cost model's count of one."""

    choices: tuple[ConfiguredSchedule, ...]
    predicted: Callable[[ConfiguredSchedule], int]

    def unseen(self, seen: TriedCounts) -> list[ConfiguredSchedule]:
        return [choice for choice in self.choices if choice not in seen]


Strategy: TypeAlias = Callable[
    [SearchSpace, TriedCounts, int, np.random.Generator], Sequence[ConfiguredSchedule]
]


def propose_random(
    space: SearchSpace, seen: TriedCounts, count: int, rng: np.random.Generator
) -> Sequence[ConfiguredSchedule]:
    """Any choices, each with the same probability."""
    rest = space.unseen(seen)
    order = rng.permutation(len(rest))
    return [rest[index] for index in order[:count]]


def propose_by_cost_model(
    space: SearchSpace, seen: TriedCounts, count: int, rng: np.random.Generator
) -> Sequence[ConfiguredSchedule]:
    """The choices that the cost model likes best, corrected by how wrong it was for their rules."""
    rest = space.unseen(seen)
    corrections = _corrections(space, seen)
    overall = corrections.get("", 1.0)
    costs = {c: space.predicted(c) * corrections.get(c[0], overall) for c in rest}
    return sorted(rest, key=costs.__getitem__)[:count]


def _corrections(space: SearchSpace, seen: TriedCounts) -> dict[str, float]:
    """Counted over predicted, by rule and (as "") in all: geometric means."""
    logs: dict[str, list[float]] = {}
    for choice, counted in seen.items():
        if counted:
            ratio = math.log(counted / max(1, space.predicted(choice)))
            logs.setdefault(choice[0], []).append(ratio)
            logs.setdefault("", []).append(ratio)
    return {name: math.exp(math.fsum(found) / len(found)) for name, found in logs.items()}


_PARENTS = 4
_STRANGERS = 0.2
"""The share of proposals that descend from nobody."""


def propose_by_mutation(
    space: SearchSpace, seen: TriedCounts, count: int, rng: np.random.Generator
) -> Sequence[ConfiguredSchedule]:
    """Neighbours of the best so far: one setting of a configuration changed.

    The first are the best guess of each rule, and strangers.
    """
    rest = space.unseen(seen)
    if not seen:
        guesses = list({choice[0]: choice for choice in reversed(rest)}.values())[::-1]
        seen = dict.fromkeys(guesses)
        return [*guesses, *propose_random(space, seen, count, rng)][:count]
    counted = sorted((n, choice) for choice, n in seen.items() if n is not None)
    parents = [choice for _, choice in counted[:_PARENTS]]
    found: list[ConfiguredSchedule] = []
    while len(found) < count and rest:
        parent = parents[int(rng.integers(len(parents)))] if parents else None
        near = [] if parent is None else [c for c in rest if _is_neighbour(parent, c)]
        pool = rest if not near or rng.random() < _STRANGERS else near
        child = pool[int(rng.integers(len(pool)))]
        rest.remove(child)
        found.append(child)
    return found


def _is_neighbour(a: ConfiguredSchedule, b: ConfiguredSchedule) -> bool:
    """Whether two choices are of one rule and differ in one setting."""
    return a[0] == b[0] and len({name for name, _ in set(a[1]) ^ set(b[1])}) == 1


STRATEGIES: Mapping[str, Strategy] = {
    "random": propose_random,
    "evolutionary": propose_by_mutation,
    "model": propose_by_cost_model,
}
