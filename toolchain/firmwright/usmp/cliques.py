"""Groups of buffers of which no two may share a byte, one for each moment that needs its own.

In: a Problem. Out: `live_cliques`, tuples of buffer numbers. Invariants: any two of a group are
alive
at one moment and conflict plainly (disjoint, whatever the offsets); no group is part of another;
of buffers that may overlap each other the largest represents the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from firmwright.usmp.planning_problem import PlanningProblem, Relation


def live_cliques(problem: PlanningProblem, members: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The groups among `members`, in the order of time."""
    partners = {index: _plain_partners(problem, index) for index in members}
    found: list[frozenset[int]] = []
    for alive in _moments(problem, members):
        group: set[int] = set()
        for index in sorted(alive, key=lambda i: (-problem.buffers[i].size_bytes, i)):
            if group <= partners[index]:
                group.add(index)
        found.append(frozenset(group))
    return tuple(tuple(sorted(group)) for group in _maximal(found))


def is_disjointness(problem: PlanningProblem, index: int, relation: Relation) -> bool:
    """Whether the relation alone keeps the two buffers disjoint."""
    size, other = problem.buffers[index].size_bytes, problem.buffers[relation.other].size_bytes
    return relation.modulus < 2 and relation.lo <= -size and relation.hi >= other


def _plain_partners(problem: PlanningProblem, index: int) -> set[int]:
    return {r.other for r in problem.relations[index] if is_disjointness(problem, index, r)}


def _moments(problem: PlanningProblem, members: Sequence[int]) -> list[set[int]]:
    """Who is alive, at each moment at which somebody becomes so."""
    changes: dict[int, tuple[list[int], list[int]]] = {}
    for index in members:
        for live in problem.buffers[index].live:
            changes.setdefault(live.first, ([], []))[0].append(index)
            changes.setdefault(live.end, ([], []))[1].append(index)
    alive: set[int] = set()
    found = []
    for _, (begin, end) in sorted(changes.items()):
        alive.difference_update(end)
        alive.update(begin)
        if begin:
            found.append(set(alive))
    return found


def _maximal(groups: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    """Those that are no part of another one, each once."""
    holding: dict[int, list[frozenset[int]]] = {}
    for group in dict.fromkeys(groups):
        for index in group:
            holding.setdefault(index, []).append(group)
    return [
        group
        for group in dict.fromkeys(groups)
        if group and not any(group < other for other in holding[min(group)])
    ]
