"""Planner `cpsat`: places buffers by OR-Tools' constraint solver, which also proves the optimum.

In: a problem of any number of pools. Out: its plan, and as lower bound what the solver proved.
Invariants: one worker, a fixed seed and a limit on its deterministic time, not on the clock, so the
plan is the same each time; ortools is imported here only, and only when the planner is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from firmwright.base.errors import ToolMissingError
from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.plan import BufferInfo, OffsetConstraint, Plan
from firmwright.usmp.cliques import is_disjointness, live_cliques
from firmwright.usmp.heuristics import best_first_fit
from firmwright.usmp.planning_problem import Layout, PlanningProblem, Relation, solve_problem

_WORK = 20.0
"""In the solver's own deterministic unit, of which about one passes in a second."""


def cp_sat(
    buffers: Sequence[BufferInfo], conflicts: Sequence[OffsetConstraint], pools: Sequence[PoolInfo]
) -> Plan:
    """OR-Tools' CP-SAT: the optimum, proven, over all pools (needs firmwright[exact])."""
    solver = _ortools()
    return solve_problem(
        "cpsat", lambda problem: _solve(solver, problem), buffers, conflicts, pools
    )


def _ortools() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise ToolMissingError(
            "the memory planner cpsat needs the Python package ortools, which is not installed.",
            hint="pip install 'firmwright[exact]', or --planner exact.",
        ) from error
    return cp_model


def _solve(cp_model: Any, problem: PlanningProblem) -> Layout:
    start = best_first_fit(problem)
    if start.cost <= (0, problem.lower_bound_bytes):
        return start
    encoding = _Encoding(cp_model, problem, start)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = _WORK
    status = solver.solve(encoding.model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return start
    proven = round(solver.best_objective_bound)
    return replace(encoding.layout(solver), proven_bytes=proven)


class _Encoding:
    """The problem in the solver's terms: an offset and a pool for each buffer, tops to minimise."""

    def __init__(self, cp_model: Any, problem: PlanningProblem, start: Layout) -> None:
        self.model = cp_model.CpModel()
        self._problem = problem
        self._ceiling = self._highest(start)
        self._steps = [self._step(index) for index in range(len(problem.buffers))]
        self._offsets = [
            buffer.alignment * step
            for buffer, step in zip(problem.buffers, self._steps, strict=True)
        ]
        self._inside = [self._pools_of(index) for index in range(len(problem.buffers))]
        self._tops = self._limit_pools()
        grouped = self._keep_sections_apart()
        for b, relations in enumerate(problem.relations):
            for relation in relations:
                pair = (relation.other, b)
                if relation.other < b and not (
                    pair in grouped and is_disjointness(problem, b, relation)
                ):
                    self._keep_apart(b, relation)
        self.model.minimize(sum(self._tops.values()))
        self.model.add(sum(self._tops.values()) >= problem.lower_bound_bytes)
        self._hint(start)

    def layout(self, solver: Any) -> Layout:
        """What the solver found; pools shrink to what lies in them."""
        pools = tuple(
            next(pool for pool, is_in in inside.items() if solver.boolean_value(is_in))
            for inside in self._inside
        )
        offsets = tuple(solver.value(offset) for offset in self._offsets)
        tops: dict[str, int] = {}
        for buffer, pool, offset in zip(self._problem.buffers, pools, offsets, strict=True):
            tops[pool] = max(tops.get(pool, 0), offset + buffer.size_bytes)
        return Layout(pools, offsets, tops, 0)

    def _highest(self, start: Layout) -> int:
        """No pool of a best plan is larger: all first fits together, or all buffers in a row."""
        if not start.unplaced_bytes:
            return sum(start.tops.values())
        return sum(
            -(-buffer.size_bytes // buffer.alignment) * buffer.alignment
            for buffer in self._problem.buffers
        ) + max((r.hi for mine in self._problem.relations for r in mine), default=0)

    def _step(self, index: int) -> Any:
        buffer = self._problem.buffers[index]
        most = max(0, self._ceiling - buffer.size_bytes) // buffer.alignment
        return self.model.new_int_var(0, most, buffer.name)

    def _pools_of(self, index: int) -> dict[str, Any]:
        candidates = self._problem.buffers[index].pools
        if len(candidates) == 1:
            return {candidates[0]: self.model.new_constant(1)}
        inside = {pool: self.model.new_bool_var(f"{index} in {pool}") for pool in candidates}
        self.model.add_exactly_one(inside.values())
        return inside

    def _limit_pools(self) -> dict[str, Any]:
        tops: dict[str, Any] = {}
        for buffer, offset, inside in zip(
            self._problem.buffers, self._offsets, self._inside, strict=True
        ):
            for pool, is_in in inside.items():
                if pool not in tops:
                    limit = self._problem.limits[pool]
                    most = self._ceiling if limit is None else min(limit, self._ceiling)
                    tops[pool] = self.model.new_int_var(0, most, pool)
                self.model.add(offset + buffer.size_bytes <= tops[pool]).only_enforce_if(is_in)
        return tops

    def _keep_sections_apart(self) -> set[tuple[int, int]]:
        """One constraint for all of a section; returns the pairs for which that says it."""
        grouped: set[tuple[int, int]] = set()
        spans: dict[tuple[int, str], Any] = {}
        for section in live_cliques(self._problem, range(len(self._problem.buffers))):
            for pool in sorted({pool for index in section for pool in self._inside[index]}):
                members = [index for index in section if pool in self._inside[index]]
                for index in members:
                    if (index, pool) not in spans:
                        spans[index, pool] = self._span(index, pool)
                self.model.add_no_overlap([spans[index, pool] for index in members])
            grouped.update((a, b) for a in section for b in section if a < b)
        return grouped

    def _span(self, index: int, pool: str) -> Any:
        size, offset = self._problem.buffers[index].size_bytes, self._offsets[index]
        return self.model.new_optional_fixed_size_interval_var(
            offset, size, self._inside[index][pool], f"{index} in {pool}"
        )

    def _keep_apart(self, b: int, relation: Relation) -> None:
        """b below, above or at a free multiple of the period, or the two in different pools."""
        a = relation.other
        difference = self._offsets[b] - self._offsets[a]
        below, above = self.model.new_bool_var(""), self.model.new_bool_var("")
        self.model.add(difference <= relation.lo).only_enforce_if(below)
        self.model.add(difference >= relation.hi).only_enforce_if(above)
        ways = [below, above]
        if relation.modulus > 1:
            ways.append(self.model.new_bool_var(""))
            first = -(-(relation.lo - relation.residue) // relation.modulus)
            last = (relation.hi - relation.residue) // relation.modulus
            times = self.model.new_int_var(first, last, "")
            at = relation.residue + relation.modulus * times
            self.model.add(difference == at).only_enforce_if(ways[-1])
        for pool in self._inside[a].keys() & self._inside[b].keys():
            together = (self._inside[a][pool], self._inside[b][pool])
            self.model.add_bool_or([*ways, *(is_in.negated() for is_in in together)])

    def _hint(self, start: Layout) -> None:
        """The best first fit is where the solver begins."""
        if start.unplaced_bytes:
            return
        for index, buffer in enumerate(self._problem.buffers):
            self.model.add_hint(self._steps[index], start.offsets[index] // buffer.alignment)
            if len(buffer.pools) > 1:
                for pool, is_in in self._inside[index].items():
                    self.model.add_hint(is_in, pool == start.pools[index])
