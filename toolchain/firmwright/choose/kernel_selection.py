"""Kernel selection: choose a kernel for every call, and the calls to stream by rows.

Time is predicted cycles if the core has a timing table, else predicted instructions. The goals are:

* `speed`: the fastest candidate of every call; `size`: the smallest image that is not much slower
  than the fastest program within the default flash budget, or the fastest image within
  `flash_bytes` (`image_search`). `balanced` with `flash_bytes` is `size`.
* `balanced`: of candidates nearly as fast as the fastest, the program with the lowest time^2 x
  flash^2 x workspace (decision 0022); where its memory peaks, calls are streamed by rows if that
  lowers the product and hardly takes time. If this program or that of `speed` does not fit the
  pools, the fastest program that fits.
* `ram`: the program with the lowest peak among those that are not much slower.
* with `ram_bytes`: the fastest program within that many bytes.

Code and constants do not exceed `flash_bytes`; without it, `balanced` and `ram` have a default
budget (`flash_budget`). `thresholds` has the constants of these trade-offs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

import numpy as np

from firmwright.base.errors import UsageError
from firmwright.base.weight_code import encode_blocks
from firmwright.choose import thresholds
from firmwright.choose.flash_budget import (
    CandidateCost,
    CandidatesPerCall,
    CodeKey,
    KeyOf,
    apply_default_flash_budget,
    dedupe_code_cost,
    fastest_candidates,
    fastest_time,
    fit_flash_budget,
)
from firmwright.choose.image_search import ImageSearch
from firmwright.choose.program_search import PlanEstimate, ProgramCandidate, ProgramSearch
from firmwright.choose.streaming_candidates import RowsOf
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IRModule
from firmwright.ir.settings import Minimize
from firmwright.ops.schedule import LoweringCandidate

_BY_TIME: CandidateCost = attrgetter("time")
_CODED_BYTES_MIN, _DECODING_BYTES = 4096, 160
"""Size from which constants are expected to be coded, and the code that decodes each."""


@dataclass(frozen=True, slots=True)
class SelectionOracle:
    """Callbacks of the pipeline for plan estimates, plan checks and deduplication.

    Kernels for which `key` returns the same code can be deduplicated.
    """

    estimate: Callable[[IRModule], PlanEstimate]
    fits: Callable[[IRModule], bool]
    key: KeyOf = lambda kernel: CodeKey(id(kernel))


class KernelSelector:
    """Selects the kernels of a module; several selections share one search.

    `rows_of` returns a call's row kernels on demand. Raises DoesNotFitError if no choice fits the
    flash budget.
    """

    def __init__(
        self,
        module: IRModule,
        candidates_per_call: CandidatesPerCall,
        rows_of: RowsOf,
        oracle: SelectionOracle,
    ) -> None:
        self.module, self.rows_of, self.oracle = module, rows_of, oracle
        objective = module.settings.objective
        self.goal = objective.minimize
        self.flash_bytes = objective.flash_bytes
        is_coded = self.flash_bytes is not None and objective.has_coded_weights
        self.saved_bytes = _compressible_bytes(module) if is_coded else None
        self._programs: dict[int, tuple[ProgramCandidate, ...]] = {}
        self._undivided = candidates_per_call

    @cached_property
    def candidates(self) -> CandidatesPerCall:
        """The candidates within the flash budget, code divided among the calls that share it."""
        divided = dedupe_code_cost(self._undivided, self.oracle.key)
        if self.flash_bytes is not None:
            return fit_flash_budget(divided, self.flash_bytes, saved_bytes=self.saved_bytes)
        if self.goal in thresholds.PROGRAM_PERCENT_MAX:
            return apply_default_flash_budget(self.module, divided)
        return divided

    def select(self) -> IRModule:
        """Return the module with a kernel for every call."""
        goal, fits = self.goal, self.oracle.fits
        is_free = self.module.settings.objective.has_free_ram
        fed = self.module.io.stream_input_rows
        whole_calls = [self._best_whole_calls()] if is_free and not fed else []
        if whole_calls and goal is not Minimize.RAM and fits(whole_calls[0].module):
            best = whole_calls[0]
            return (self._with_streamed_peak(best) if goal is Minimize.BALANCED else best).module
        programs = self.programs() or self.programs(thresholds.UNLIMITED_PERCENT)
        if not programs:
            raise UsageError(
                "--stream-input-rows: the operators that read the input cannot be computed row by "
                "row together.",
                hint="compile without it.",
            )
        if is_free and goal in thresholds.PROGRAM_PERCENT_MAX and (fed or goal is Minimize.RAM):
            best_time = max(min(item.time for item in programs), fastest_time(self.candidates))
            limit = thresholds.PROGRAM_PERCENT_MAX[goal] * best_time // 100
            fast = [item for item in (*whole_calls, *programs) if item.time <= limit]
            smallest = min(fast, key=lambda item: (item.workspace_bytes, item.time))
            if fits(smallest.module):
                return smallest.module
        fitting = self.fastest_within(self.module.pools)
        every = self.programs(thresholds.UNLIMITED_PERCENT) if fitting is None else ()
        return (fitting or min(every, key=lambda item: item.workspace_bytes)).module

    def fastest_within(self, pools: tuple[PoolInfo, ...]) -> ProgramCandidate | None:
        for percent in (thresholds.CANDIDATE_PERCENT_MAX, thresholds.UNLIMITED_PERCENT):
            for item in self.programs(percent):
                if self.oracle.fits(module := replace(item.module, pools=pools)):
                    return replace(item, module=module)
        return None

    def programs(
        self, percent: int = thresholds.CANDIDATE_PERCENT_MAX
    ) -> tuple[ProgramCandidate, ...]:
        """Return the programs on the Pareto front, from the fastest to the smallest in memory."""
        if percent not in self._programs:
            ordered = _sort_candidates(self.candidates, _BY_TIME)
            estimate, limit, saved = self.oracle.estimate, self.flash_bytes, self.saved_bytes or 0
            search = ProgramSearch(self.module, ordered, self.rows_of, estimate, percent)
            found = search.candidates()
            within = tuple(p for p in found if limit is None or p.image_bytes - saved <= limit)
            self._programs[percent] = within or found
        return self._programs[percent]

    def _best_whole_calls(self) -> ProgramCandidate:
        module, estimate = self.module, self.oracle.estimate
        if self.goal not in thresholds.PROGRAM_PERCENT_MAX:
            return ProgramSearch(module, self._fast_or_small(), _no_rows, estimate).whole_calls()
        cost_of, percent = _blend_time_and_flash(self.candidates), thresholds.SMALL_PERCENT_MAX
        near = [(call, _nearly_fastest(candidates)) for call, candidates in self.candidates]
        ordered = _sort_candidates(near, cost_of)
        search = ProgramSearch(module, ordered, _no_rows, estimate, percent, cost_of)
        return min(search.candidates(), key=_balance)

    def _fast_or_small(self) -> CandidatesPerCall:
        """Return the candidates for the goals `speed` and `size`, the best one of a call first."""
        if self.goal is Minimize.SPEED:
            return _sort_candidates(self.candidates, _BY_TIME)
        images = ImageSearch(self._undivided, self.oracle.key)
        if self.flash_bytes is not None:
            return images.fastest_within(self.flash_bytes, self.saved_bytes)
        time = fastest_time(apply_default_flash_budget(self.module, self.candidates))
        return images.smallest_within(thresholds.SIZE_PERCENT_MAX * time // 100)

    def _with_streamed_peak(self, best: ProgramCandidate) -> ProgramCandidate:
        """Return `best`, or its variant with row streaming where the memory peaks."""
        if best.workspace_bytes < thresholds.STREAMED_BYTES_MIN:
            return best
        search = ProgramSearch(
            self.module,
            best.calls,
            self.rows_of,
            self.oracle.estimate,
            streamed_percent=thresholds.STREAMED_NEED_PERCENT,
        )
        limit = thresholds.STREAMED_TIME_PERCENT * best.time
        fast = [item for item in (best, *search.candidates()) if 100 * item.time <= limit]
        return min(fast, key=_balance)


def _compressible_bytes(module: IRModule) -> int:
    """Return an estimate of the bytes that `--compress-weights` saves, without the code for it."""
    large = [one.data for one in module.constants.values() if one.size_bytes >= _CODED_BYTES_MIN]
    blocks = (np.frombuffer(data, np.uint8)[np.newaxis] for data in large)
    saved = (each.nbytes - encode_blocks(each).nbytes - _DECODING_BYTES for each in blocks)
    return sum(max(0, each) for each in saved)


def _balance(program: ProgramCandidate) -> int:
    return (program.time * program.image_bytes) ** 2 * program.workspace_bytes


def _blend_time_and_flash(candidates_per_call: CandidatesPerCall) -> CandidateCost:
    fastest = fastest_candidates(candidates_per_call)
    time = sum(item.time for item in fastest)
    size = max(sum(item.image_bytes for item in fastest), 1)
    return lambda item: item.time + item.image_bytes * time // size


def _nearly_fastest(candidates: Sequence[LoweringCandidate]) -> tuple[LoweringCandidate, ...]:
    fastest = min(candidates, key=_BY_TIME, default=None)
    if fastest is None:
        return ()
    small = thresholds.SMALL_FLASH_PERCENT * fastest.flash_bytes

    def limit(item: LoweringCandidate) -> int:
        is_small = 100 * item.flash_bytes <= small
        return thresholds.SMALL_PERCENT_MAX if is_small else thresholds.NEAR_PERCENT_MAX

    return tuple(i for i in candidates if 100 * i.time <= limit(i) * fastest.time)


def _no_rows(index: int, band: int) -> None: ...


def _sort_candidates(
    candidates_per_call: CandidatesPerCall, cost_of: CandidateCost
) -> CandidatesPerCall:
    def key(item: LoweringCandidate) -> tuple[int, int]:
        return cost_of(item), item.scratch_bytes

    return [(call, sorted(candidates, key=key)) for call, candidates in candidates_per_call]
