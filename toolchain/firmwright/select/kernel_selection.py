"""Kernel selection: choose a kernel for every call, and which calls are row-streamed.

Time is predicted cycles if the core has a timing table, else predicted instructions. The goals are:

* `speed`: the fastest candidate everywhere; `size`: the one with the least flash.
* `balanced`: of candidates nearly as fast as the fastest, the program with the lowest
  time^2 x flash^2 x workspace, so that a percent of time may cost a percent of flash or two of
  memory. If this or `speed` does not fit the pools, the fastest program that does.
* `ram`: the program with the lowest peak among those that are not much slower.
* with `ram_bytes`: the fastest program within that many bytes.

Code and constants do not exceed `flash_bytes`. Without that attribute, `balanced` and `ram` have a
default budget (`flash_budget`). All constants of these trade-offs are in `policy`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.schedule import LoweringCandidate
from firmwright.select import policy
from firmwright.select.flash_budget import (
    CandidateCost,
    CandidatesPerCall,
    apply_default_flash_budget,
    dedupe_code_cost,
    fastest_candidates,
    fastest_time,
    fit_flash_budget,
)
from firmwright.select.fused_segments import RowsOf
from firmwright.select.memory_refinement import PlanEstimate
from firmwright.select.program_search import (
    OrderedCandidates,
    ProgramCandidate,
    ProgramSearch,
    whole_call_candidate,
)


@dataclass(frozen=True, slots=True)
class SelectionOracle:
    """Callbacks of the pipeline for plan estimates, plan checks and deduplication.

    Kernels with equal `key` can be deduplicated.
    """

    estimate: Callable[[IRModule], PlanEstimate]
    fits: Callable[[IRModule], bool]
    key: Callable[[tir.PrimFunc], Hashable] = id


def select_module(
    module: IRModule,
    candidates_per_call: CandidatesPerCall,
    rows_of: RowsOf,
    oracle: SelectionOracle,
) -> IRModule:
    """Return the module with a kernel for every call.

    `rows_of` returns a call's row kernels on demand. Raises DoesNotFitError if no choice fits the
    flash budget.
    """
    goal = str(module.attrs.get("optimize", "balanced"))
    candidates_per_call = _limit_by_flash(
        module, dedupe_code_cost(candidates_per_call, oracle.key), goal
    )
    is_free, fed = "ram_bytes" not in module.attrs, module.io.stream_input_rows
    whole_calls = (
        (_best_whole_calls(module, candidates_per_call, oracle, goal),)
        if is_free and not fed
        else ()
    )
    if whole_calls and goal != "ram" and oracle.fits(whole_calls[0].module):
        return whole_calls[0].module
    programs = _candidates(module, candidates_per_call, rows_of, oracle)
    if is_free and goal in policy.PROGRAM_PERCENT_MAX and (fed or goal == "ram"):
        best_time = max(min(item.time for item in programs), fastest_time(candidates_per_call))
        smallest = _least_memory(
            (*whole_calls, *programs), policy.PROGRAM_PERCENT_MAX[goal] * best_time // 100
        )
        if oracle.fits(smallest.module):
            return smallest.module
    fitting = _first_fitting(programs, oracle)
    if fitting is None:
        programs = _candidates(
            module, candidates_per_call, rows_of, oracle, policy.UNLIMITED_PERCENT
        )
        fitting = _first_fitting(programs, oracle)
    return (fitting or min(programs, key=lambda item: item.workspace_bytes)).module


def list_programs(
    module: IRModule,
    candidates_per_call: CandidatesPerCall,
    rows_of: RowsOf,
    oracle: SelectionOracle,
) -> tuple[ProgramCandidate, ...]:
    """Return the programs from the fastest to the one with the least memory."""
    goal = str(module.attrs.get("optimize", "balanced"))
    candidates_per_call = _limit_by_flash(
        module, dedupe_code_cost(candidates_per_call, oracle.key), goal
    )
    return _candidates(module, candidates_per_call, rows_of, oracle)


def _limit_by_flash(
    module: IRModule, candidates_per_call: CandidatesPerCall, goal: str
) -> CandidatesPerCall:
    if "flash_bytes" in module.attrs:
        return fit_flash_budget(candidates_per_call, int(str(module.attrs["flash_bytes"])))
    return (
        apply_default_flash_budget(module, candidates_per_call)
        if goal in policy.PROGRAM_PERCENT_MAX
        else candidates_per_call
    )


def _candidates(
    module: IRModule,
    candidates_per_call: CandidatesPerCall,
    rows_of: RowsOf,
    oracle: SelectionOracle,
    call_percent: int = policy.CANDIDATE_PERCENT_MAX,
) -> tuple[ProgramCandidate, ...]:
    ordered = _sort_candidates(candidates_per_call, "speed", attrgetter("time"))
    programs = ProgramSearch(module, ordered, rows_of, oracle.estimate, call_percent).candidates()
    limit = module.attrs.get("flash_bytes")
    return (
        tuple(c for c in programs if limit is None or c.image_bytes <= int(str(limit))) or programs
    )


def _first_fitting(
    programs: Sequence[ProgramCandidate], oracle: SelectionOracle
) -> ProgramCandidate | None:
    return next((item for item in programs if oracle.fits(item.module)), None)


def _least_memory(programs: Sequence[ProgramCandidate], time_limit: int) -> ProgramCandidate:
    fast = [item for item in programs if item.time <= time_limit]
    return min(fast, key=lambda item: (item.workspace_bytes, item.time))


# ---- every call as a whole ---------------------------------------------------------------------


def _best_whole_calls(
    module: IRModule, candidates_per_call: CandidatesPerCall, oracle: SelectionOracle, goal: str
) -> ProgramCandidate:
    if goal not in policy.PROGRAM_PERCENT_MAX:
        ordered = _sort_candidates(candidates_per_call, goal, attrgetter("time"))
        return whole_call_candidate(module, ordered, tuple(0 for _ in ordered), oracle.estimate)
    cost_of = _blend_time_and_flash(candidates_per_call)
    near = _sort_candidates(
        [(call, _nearly_fastest(search)) for call, search in candidates_per_call], goal, cost_of
    )
    search = ProgramSearch(
        module, near, _no_rows, oracle.estimate, policy.NEAR_PERCENT_MAX, cost_of
    )
    return min(search.candidates(), key=_balanced_cost)


def _blend_time_and_flash(candidates_per_call: CandidatesPerCall) -> CandidateCost:
    fastest = fastest_candidates(candidates_per_call)
    time = sum(item.time for item in fastest)
    size = max(sum(item.image_bytes for item in fastest), 1)
    return lambda item: item.time + item.image_bytes * time // size


def _nearly_fastest(candidates: Sequence[LoweringCandidate]) -> tuple[LoweringCandidate, ...]:
    limit = policy.NEAR_PERCENT_MAX * min((item.time for item in candidates), default=0)
    return tuple(item for item in candidates if 100 * item.time <= limit)


def _balanced_cost(item: ProgramCandidate) -> int:
    return (item.time * item.image_bytes) ** 2 * item.workspace_bytes


def _no_rows(index: int, band: int) -> None: ...


def _sort_candidates(
    candidates_per_call: CandidatesPerCall, goal: str, cost_of: CandidateCost
) -> OrderedCandidates:
    def key(item: LoweringCandidate) -> tuple[int, int]:
        if goal == "size":
            return item.image_bytes, item.time
        return cost_of(item), item.scratch_bytes

    return [(call, sorted(candidates, key=key)) for call, candidates in candidates_per_call]
