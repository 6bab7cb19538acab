"""Maximal cliques of mutually disjoint buffers, at most one per point in time."""

from __future__ import annotations

from collections.abc import Sequence

from firmwright.ir.tir.plan import OffsetConstraint
from firmwright.usmp.planning_problem import PlanningProblem


def live_cliques(problem: PlanningProblem, members: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the cliques among `members` in order of time, as sorted buffer numbers.

    Of buffers that may overlap, only the largest is included. No clique contains another.
    """
    partners = {
        index: {c.a for c in problem.constraints[index] if forbids_overlap(problem, c)}
        for index in members
    }
    cliques: list[frozenset[int]] = []
    for alive in _live_sets(problem, members):
        clique: set[int] = set()
        for index in sorted(alive, key=lambda i: (-problem.buffers[i].size_bytes, i)):
            if clique <= partners[index]:
                clique.add(index)
        cliques.append(frozenset(clique))
    return tuple(tuple(sorted(clique)) for clique in _maximal(cliques))


def forbids_overlap(problem: PlanningProblem, constraint: OffsetConstraint[int]) -> bool:
    a, b = problem.buffers[constraint.a].size_bytes, problem.buffers[constraint.b].size_bytes
    return constraint.modulus < 2 and constraint.lo <= -b and constraint.hi >= a


def _live_sets(problem: PlanningProblem, members: Sequence[int]) -> list[set[int]]:
    changes: dict[int, tuple[list[int], list[int]]] = {}
    for index in members:
        for live in problem.buffers[index].live:
            changes.setdefault(live.first, ([], []))[0].append(index)
            changes.setdefault(live.end, ([], []))[1].append(index)
    alive: set[int] = set()
    live_sets = []
    for _, (begin, end) in sorted(changes.items()):
        alive.difference_update(end)
        alive.update(begin)
        if begin:
            live_sets.append(set(alive))
    return live_sets


def _maximal(cliques: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    containing: dict[int, list[frozenset[int]]] = {}
    for clique in dict.fromkeys(cliques):
        for index in clique:
            containing.setdefault(index, []).append(clique)
    return [
        clique
        for clique in dict.fromkeys(cliques)
        if clique and not any(clique < other for other in containing[min(clique)])
    ]
