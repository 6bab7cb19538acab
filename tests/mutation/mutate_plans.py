"""Mutants of memory plans and of planning problems.

The plan validator judges a mutated plan. A mutated problem (a missing conflict, a
shortened live range, a forbidden overlap) yields a plan that is valid for it; then the
C runs with every byte compared with its last writer, as `verify --check-plan` does.
`free_of_collisions` checks accepted plans by another method: a map of bytes over time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any
from unittest.mock import patch

from firmwright.base.errors import FirmwrightError, InternalError
from firmwright.flows.verify.access_checking import open_checked_session
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IRModule
from firmwright.ir.tir.plan import (
    BufferInfo,
    LiveRange,
    OffsetConstraint,
    Placement,
    Plan,
)
from firmwright.usmp import interference, memory_planning
from firmwright.usmp.interference import Constraints
from firmwright.usmp.plan_validator import check_plan
from firmwright.usmp.planning_input import PlanningInput
from tests.mutation.mutants import SURVIVED, Mutant, Outcome, caught, drawn
from tests.mutation.subjects import Subject, checked, with_module

RUNS = 2


def plan_of(subject: Subject) -> Plan:
    """Return the subject's plan."""
    plan = subject.compiled.module.plan
    assert plan is not None
    return plan


# ---- the plan ------------------------------------------------------------------------


def plan_mutants(subject: Subject, per_kind: int) -> Iterator[Mutant]:
    """Return plans that the validator must reject."""
    plan, pools = plan_of(subject), subject.compiled.module.pools
    for kind, make in PLANS.items():
        sites = [(site, wrong) for site, wrong in make(plan, pools) if wrong != plan]
        for site, wrong in drawn(sites, per_kind, f"{subject.name} {kind}"):
            yield Mutant(
                kind, f"{subject.name}: {site}", partial(judge_plan, wrong, plan, pools)
            )
    for site, smaller in _smaller_pools(plan, pools):
        judge = partial(judge_plan, plan, plan, smaller)
        yield Mutant(
            "size of a board's pool too small", f"{subject.name}: {site}", judge
        )
    module = subject.compiled.module
    for kind, make in PLANS.items():
        sites = [(site, wrong) for site, wrong in make(plan, pools) if wrong != plan]
        for site, wrong in drawn(sites, per_kind // 2, f"{subject.name} module {kind}"):
            judge = partial(judge_module, subject, replace(module, plan=wrong), wrong)
            yield Mutant(f"{kind}, in a text", f"{subject.name}: {site}", judge)


def judge_plan(wrong: Plan, plan: Plan, pools: tuple[PoolInfo, ...]) -> Outcome:
    """Judge by the validator; an accepted plan must be as good as the original."""
    try:
        check_plan(wrong, plan.buffers, plan.conflicts, pools)
    except InternalError as error:
        return caught("plan validator", error)
    return _harmless(wrong)


def judge_module(subject: Subject, module: IRModule, wrong: Plan) -> Outcome:
    """Judge by the verifier for modules read from text."""
    found = checked(subject, module)
    return _harmless(wrong) if found.survived else found


def _harmless(wrong: Plan) -> Outcome:
    if free_of_collisions(wrong):
        return Outcome(same="no byte is two buffers' at any moment")
    return SURVIVED


def free_of_collisions(plan: Plan) -> bool:
    """Return whether each byte has one owner at a time, and pool sizes fit exactly.

    Returns False if buffers may share memory by rule.
    """
    tops: dict[str, int] = {}
    for buffer in plan.buffers:
        place = plan.placements.get(buffer.name)
        if place is None or place.offset % buffer.alignment:
            return False
        tops[place.pool] = max(
            tops.get(place.pool, 0), place.offset + buffer.size_bytes
        )
    moments = sorted(
        {edge for b in plan.buffers for live in b.live for edge in _edges(live)}
    )
    return tops == dict(plan.pool_bytes) and all(
        _one_owner(plan, now) for now in moments
    )


def _edges(live: LiveRange) -> range:
    return range(live.first, live.end)


def _one_owner(plan: Plan, now: int) -> bool:
    owners: dict[tuple[str, int], str] = {}
    meeting = {
        frozenset((c.a, c.b)) for c in plan.conflicts if c.lo != -_size(plan, c.b)
    }
    for buffer in plan.buffers:
        if any(live.first <= now < live.end for live in buffer.live):
            place = plan.placements[buffer.name]
            for byte in range(place.offset, place.offset + buffer.size_bytes):
                owner = owners.setdefault((place.pool, byte), buffer.name)
                if (
                    owner != buffer.name
                    and frozenset((owner, buffer.name)) not in meeting
                ):
                    return False
    return True


def _size(plan: Plan, name: str) -> int:
    return next(buffer.size_bytes for buffer in plan.buffers if buffer.name == name)


Wrongs = Iterator[tuple[str, Plan]]


def _moved(by: Callable[[BufferInfo], int]) -> Callable[[Plan, Any], Wrongs]:
    def make(plan: Plan, pools: Any) -> Wrongs:
        for buffer in plan.buffers:
            place = plan.placements[buffer.name]
            moved = replace(place, offset=place.offset + by(buffer))
            yield buffer.name, _placed(plan, buffer.name, moved)

    return make


def _placed(plan: Plan, name: str, place: Placement) -> Plan:
    return replace(plan, placements={**plan.placements, name: place})


def _onto_another(plan: Plan, pools: Any) -> Wrongs:
    """Move a buffer onto another that must keep all of its bytes at that time."""
    for conflict in plan.conflicts:
        a, b = (_buffer(plan, name) for name in (conflict.a, conflict.b))
        place = plan.placements[a.name]
        if (conflict.lo, conflict.hi) == (
            -b.size_bytes,
            a.size_bytes,
        ) and place.pool in b.pools:
            yield f"{b.name} on {a.name}", _placed(plan, b.name, place)


def _buffer(plan: Plan, name: str) -> BufferInfo:
    return next(buffer for buffer in plan.buffers if buffer.name == name)


def _swapped(plan: Plan, pools: Any) -> Wrongs:
    names = [buffer.name for buffer in plan.buffers]
    for a, b in pairwise(names):
        places = {**plan.placements, a: plan.placements[b], b: plan.placements[a]}
        yield f"{a} and {b}", replace(plan, placements=places)


def _in_no_pool(plan: Plan, pools: Any) -> Wrongs:
    for buffer in plan.buffers:
        place = plan.placements[buffer.name]
        yield buffer.name, _placed(plan, buffer.name, replace(place, pool="flash"))


def _missing(plan: Plan, pools: Any) -> Wrongs:
    for name in plan.placements:
        rest = {
            other: place for other, place in plan.placements.items() if other != name
        }
        yield name, replace(plan, placements=rest)


def _figures(by: int) -> Callable[[Plan, Any], Wrongs]:
    def make(plan: Plan, pools: Any) -> Wrongs:
        for pool, size in plan.pool_bytes.items():
            yield pool, replace(plan, pool_bytes={**plan.pool_bytes, pool: size + by})

    return make


def _bound(plan: Plan, pools: Any) -> Wrongs:
    yield "bound", replace(plan, lower_bound_bytes=plan.workspace_bytes + 1)


def _smaller_pools(
    plan: Plan, pools: tuple[PoolInfo, ...]
) -> Iterator[tuple[str, tuple[PoolInfo, ...]]]:
    for pool in pools:
        if pool.name in plan.pool_bytes:
            less = replace(pool, size_bytes=plan.pool_bytes[pool.name] - 1)
            yield pool.name, tuple(less if each is pool else each for each in pools)


PLANS: Mapping[str, Callable[[Plan, Any], Wrongs]] = {
    "offset one byte too high": _moved(lambda buffer: 1),
    "offset one byte too low": _moved(lambda buffer: -1),
    "offset one alignment too high": _moved(lambda buffer: buffer.alignment),
    "offset one alignment too low": _moved(lambda buffer: -buffer.alignment),
    "buffer on one that lives": _onto_another,
    "two buffers swapped": _swapped,
    "buffer in a pool of its own": _in_no_pool,
    "buffer without a place": _missing,
    "size of a pool too small": _figures(-1),
    "size of a pool too large": _figures(16),
    "bound above the plan": _bound,
}


# ---- the problem ---------------------------------------------------------------------


def problem_mutants(subject: Subject, per_kind: int) -> Iterator[Mutant]:
    """Return incomplete problems with their plans."""
    plan = plan_of(subject)
    for site, conflicts in drawn(
        list(_dropped(plan)), per_kind, f"{subject.name} dropped"
    ):
        judge = partial(judge_conflicts, subject, plan, conflicts)
        yield Mutant("conflict dropped", f"{subject.name}: {site}", judge)
    lives = drawn(list(_shorter(plan)), per_kind, f"{subject.name} lives")
    for site, kind, name, live in lives:
        judge = partial(judge_problem, subject, partial(_with_life, name, live))
        yield Mutant(kind, f"{subject.name}: {site}", judge)
    yield from (
        Mutant(kind, subject.name, partial(judge_problem, subject, make))
        for kind, make in OVERLAPS.items()
    )


def judge_conflicts(
    subject: Subject, plan: Plan, conflicts: tuple[OffsetConstraint[str], ...]
) -> Outcome:
    """Judge with a planner and a validator that both lack one conflict."""
    pools = subject.compiled.module.pools
    made = _careless(plan, conflicts)
    try:
        check_plan(made, plan.buffers, conflicts, pools)
    except InternalError as error:
        return caught("plan validator", error)
    return _harmless(made)


def _careless(plan: Plan, conflicts: tuple[OffsetConstraint[str], ...]) -> Plan:
    """Return the plan with the two buffers of the missing conflict in one place."""
    (missing,) = [each for each in plan.conflicts if each not in conflicts]
    return _placed(plan, missing.b, plan.placements[missing.a])


def _dropped(plan: Plan) -> Iterator[tuple[str, tuple[OffsetConstraint[str], ...]]]:
    for number, conflict in enumerate(plan.conflicts):
        rest = plan.conflicts[:number] + plan.conflicts[number + 1 :]
        if conflict.hi - conflict.lo >= 2 and not any(
            {other.a, other.b} == {conflict.a, conflict.b} for other in rest
        ):
            yield f"{conflict.a} and {conflict.b}", rest


def _shorter(plan: Plan) -> Iterator[tuple[str, str, str, LiveRange]]:
    for buffer in plan.buffers:
        live = buffer.live[0]
        if len(buffer.live) == 1 and live.end - live.first > 1:
            early = LiveRange(live.first, live.end - 1)
            late = LiveRange(live.first + 1, live.end)
            yield buffer.name, "life ends one call too early", buffer.name, early
            yield buffer.name, "life begins one call too late", buffer.name, late


def _with_life(name: str, live: LiveRange) -> AbstractContextManager[Any]:
    real = memory_planning.collect_planning_input

    def extract(*words: Any) -> PlanningInput:
        found = real(*words)
        buffers = tuple(
            replace(buffer, live=(live,)) if buffer.name == name else buffer
            for buffer in found.buffers
        )
        return replace(found, buffers=buffers)

    return patch.object(memory_planning, "collect_planning_input", extract)


def _with_constraints(
    change: Callable[[Constraints | None], Constraints | None],
) -> AbstractContextManager[Any]:
    """Replace the offset constraints of a kernel's input and output."""
    real = interference.find_offset_constraints

    def found(*words: Any) -> Constraints | None:
        return change(real(*words))

    return patch.object(interference, "find_offset_constraints", found)


def _nothing_is_forbidden(constraints: Constraints | None) -> Constraints | None:
    return ()


def _narrower(by: int) -> Callable[[Constraints | None], Constraints | None]:
    def change(constraints: Constraints | None) -> Constraints | None:
        if constraints is None:
            return None
        return tuple(
            replace(one, lo=one.lo + by, hi=one.hi - by) for one in constraints
        )

    return change


def _other_side(constraints: Constraints | None) -> Constraints | None:
    """Allow in-place execution forward where the kernel works backward."""
    if constraints is None:
        return None
    return tuple(replace(one, lo=-one.hi, hi=-one.lo) for one in constraints)


def judge_problem(
    subject: Subject, defect: Callable[[], AbstractContextManager[Any]]
) -> Outcome:
    """Plan with the defect and run the C with access tracing."""
    with defect():
        module = subject.planned(subject.unplanned)
    found = checked(subject, module)
    if not found.survived:
        return found
    if _windows(module) == _windows(subject.compiled.module):
        return Outcome(same="the plan is the same")
    try:
        with open_checked_session(with_module(subject.compiled, module)) as session:
            session.run_all(subject.samples[:RUNS])
    except FirmwrightError as error:
        return caught("--check-plan", error)
    if _right_anyway(plan_of(subject), module):
        return Outcome(same="the plan is right for the sound problem too")
    return SURVIVED


def _right_anyway(sound: Plan, module: IRModule) -> bool:
    """Return whether the validator accepts the placements for the whole problem."""
    made = module.plan
    assert made is not None
    moved = replace(sound, placements=made.placements, pool_bytes=made.pool_bytes)
    try:
        check_plan(
            replace(moved, lower_bound_bytes=0),
            sound.buffers,
            sound.conflicts,
            module.pools,
        )
    except InternalError:
        return False
    return True


def _windows(module: IRModule) -> dict[str, Placement]:
    assert module.plan is not None
    return dict(module.plan.placements)


OVERLAPS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "output on its input, whatever the order": partial(
        _with_constraints, _nothing_is_forbidden
    ),
    "output closer to its input than allowed": partial(
        _with_constraints, _narrower(64)
    ),
    "output on the wrong side of its input": partial(_with_constraints, _other_side),
}
