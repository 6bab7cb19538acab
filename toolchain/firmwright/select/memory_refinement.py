"""Memory need of each kernel candidate, and refinement of choices by trial plans.

Only a plan reveals whether adjacent kernels write in compatible directions and can share memory.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from firmwright.select import thresholds

CandidateIndices: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlanEstimate:
    """Workspace of a plan, and the live bytes at each call, by call index."""

    workspace_bytes: int
    call_bytes: Mapping[int, int]


EstimatePlan: TypeAlias = Callable[[CandidateIndices], PlanEstimate]


def memory_need_per_candidate(
    widths: Sequence[int], estimate_plan: EstimatePlan
) -> list[list[int]]:
    """Return, for each call and candidate, the bytes that must be live at the call.

    Trial plan k uses candidate k of every call, or its last one.
    """
    trials = range(max(1, *widths) if widths else 0)
    picks = [tuple(max(min(index, width - 1), 0) for width in widths) for index in trials]
    estimates = [estimate_plan(trial) for trial in picks]
    return [
        [estimate.call_bytes.get(call, 0) for estimate in estimates[: max(width, 1)]]
        for call, width in enumerate(widths)
    ]


def refine_choice(
    picks: CandidateIndices,
    goal: int,
    needs: Sequence[Sequence[int]],
    calls: Sequence[int],
    estimate_plan: EstimatePlan,
) -> CandidateIndices:
    """Change the choices of `calls` in `picks` to reduce the workspace towards `goal` bytes.

    `needs` has the bytes of each permitted candidate of each call. The number of trials is limited.
    """
    known: dict[CandidateIndices, int] = {}

    def workspace(choice: CandidateIndices) -> int:
        if choice not in known:
            known[choice] = estimate_plan(choice).workspace_bytes
        return known[choice]

    changed = True
    while changed and workspace(picks) > goal:
        changed = False
        for call in calls:
            before = picks
            for index, need in enumerate(needs[call]):
                if index == before[call]:
                    continue
                if len(known) >= thresholds.TRIAL_PLANS_MAX:
                    return picks
                trial = (*before[:call], index, *before[call + 1 :])
                if need < workspace(picks) and workspace(trial) < workspace(picks):
                    picks, changed = trial, True
    return picks
