"""Kernel selection: choose a kernel for every call, and the calls to stream by rows.

Time is predicted cycles if the core has a timing table, else predicted instructions.
The goals are:

* `speed`: the fastest candidate of every call; `size`: the smallest image that is not
  much slower than the fastest program within the default flash budget, or the fastest
  image within `flash_bytes` (`image_search`). `balanced` with `flash_bytes` is `size`.
* `balanced`: of candidates nearly as fast as the fastest, the program with the lowest
  time^2 x flash^2 x workspace (decision 0022), or one that takes a little more time
  because its kernels share code (`image_search`); where its memory peaks, calls are
  streamed by rows if that lowers the product and hardly takes time, or, with vectors,
  takes a little more time and saves half of the memory. If this program or that of
  `speed` does not fit the pools, the fastest program that fits.
* `ram`: the program with the lowest peak among those that are not much slower.
* with `ram_bytes`: the fastest program within that many bytes.

Predicted code and constants do not exceed `flash_bytes`; without it, `balanced` and
`ram` have a default budget (`flash_budget`). `thresholds` has the constants of these
trade-offs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

import numpy as np

from firmwright.base.errors import UsageError
from firmwright.base.weight_code import encode_blocks
from firmwright.choose import thresholds
from firmwright.choose.flash_budget import (
    CallCandidates,
    CandidateCost,
    CandidatesPerCall,
    CodeKey,
    KeyOf,
    apply_default_flash_budget,
    budget_error,
    dedupe_code_cost,
    fastest_candidates,
    fastest_time,
    fit_flash_budget,
)
from firmwright.choose.image_search import (
    ImageSearch,
    within_time,
    without_default_loops,
)
from firmwright.choose.program_search import (
    PlanEstimate,
    ProgramCandidate,
    ProgramSearch,
)
from firmwright.choose.streaming_candidates import RowsOf
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IRModule
from firmwright.ir.settings import Minimize
from firmwright.ops.schedule import DEFAULT_SCHEDULE, LoweringCandidate

_BY_TIME: CandidateCost = attrgetter("time")
_CODED_BYTES_MIN = 4096
"""Size from which constants are expected to be coded."""
_DECODING_BYTES = 160
"""Code that decodes a constant."""


@dataclass(frozen=True, slots=True)
class SelectionOracle:
    """Callbacks of the pipeline for plan estimates, plan checks and deduplication.

    Kernels for which `key` returns the same code can be deduplicated, those with equal
    codes of `shared_key` can share a function that takes their differing numbers, which
    only kernels with equal codes of `form` have. With `has_vectors`, a core has vector
    instructions.
    """

    estimate: Callable[[IRModule], PlanEstimate]
    fits: Callable[[IRModule], bool]
    key: KeyOf = lambda kernel: CodeKey(id(kernel))
    shared_key: KeyOf = lambda kernel: CodeKey(id(kernel))
    form: KeyOf = lambda kernel: CodeKey(0)
    has_vectors: bool = False


class KernelSelector:
    """Selects the kernels of a module; several selections share one search.

    `rows_of` returns a call's row kernels on demand. Raises DoesNotFitError if no
    choice fits the flash budget.
    """

    def __init__(
        self,
        module: IRModule,
        candidates_per_call: CandidatesPerCall,
        rows_of: RowsOf,
        oracle: SelectionOracle,
    ) -> None:
        self.module = module
        self.rows_of = rows_of
        self.oracle = oracle
        objective = module.settings.objective
        self.goal = objective.minimize
        self.flash_bytes = objective.flash_bytes
        is_coded = self.flash_bytes is not None and objective.has_coded_weights
        self.saved_bytes = _compressible_bytes(module) if is_coded else None
        self._programs: dict[int, tuple[ProgramCandidate, ...]] = {}
        self._undivided = candidates_per_call

    @cached_property
    def _divided(self) -> CandidatesPerCall:
        """All candidates; code that several calls can share is divided by them."""
        return dedupe_code_cost(self._undivided, self.oracle.key)

    @cached_property
    def candidates(self) -> CandidatesPerCall:
        """The candidates within the flash budget; shared code is divided by callers."""
        divided = self._divided
        if self.flash_bytes is not None:
            saved_bytes = self.saved_bytes
            return fit_flash_budget(divided, self.flash_bytes, saved_bytes=saved_bytes)
        if self.goal in thresholds.PROGRAM_PERCENT_MAX:
            return apply_default_flash_budget(self.module, divided)
        return divided

    def select(self) -> IRModule:
        """Return the module with a kernel for every call.

        Without a RAM budget, the goal decides; if its program does not fit the pools,
        as with a budget, the fastest program that fits; if none does, the one with the
        least memory, so that the planner's error tells how much is missing.
        """
        is_free = self.module.settings.objective.has_free_ram
        is_fed = self.module.io.stream_input_rows
        is_for_ram = self.goal is Minimize.RAM
        is_balanced = self.goal is Minimize.BALANCED
        whole_calls: list[ProgramCandidate] = []
        if is_free and not is_fed:
            best = self._best_whole_calls()
            if not is_for_ram and self.oracle.fits(best.module):
                if is_balanced:
                    best = self._with_streamed_peak(best)
                return best.module
            whole_calls.append(best)
        programs = self.programs() or self.programs(thresholds.UNLIMITED_PERCENT)
        if not programs:
            programs = self._programs_of_small_kernels()
            self._programs[thresholds.UNLIMITED_PERCENT] = programs
        if is_free and (is_for_ram or (is_balanced and is_fed)):
            smallest = self._smallest_of_fast((*whole_calls, *programs), programs)
            if self.oracle.fits(smallest.module):
                return smallest.module
        fitting = self.fastest_within(self.module.pools)
        if fitting is not None:
            return fitting.module
        every = self.programs(thresholds.UNLIMITED_PERCENT) or programs
        return min(every, key=attrgetter("workspace_bytes")).module

    def _smallest_of_fast(
        self,
        candidates: Sequence[ProgramCandidate],
        programs: Sequence[ProgramCandidate],
    ) -> ProgramCandidate:
        """Return the candidate with the least memory among those not much slower.

        The reference is the fastest of `programs`, but not less than the time of whole
        calls.
        """
        best_time = min(program.time for program in programs)
        best_time = max(best_time, fastest_time(self.candidates))
        limit = thresholds.PROGRAM_PERCENT_MAX[self.goal] * best_time // 100
        fast = [program for program in candidates if program.time <= limit]
        return min(fast, key=attrgetter("workspace_bytes", "time"))

    def fastest_within(self, pools: tuple[PoolInfo, ...]) -> ProgramCandidate | None:
        """Return the fastest program that fits the pools; None if none does."""
        for percent in (thresholds.CANDIDATE_PERCENT_MAX, thresholds.UNLIMITED_PERCENT):
            for program in self.programs(percent):
                module = replace(program.module, pools=pools)
                if self.oracle.fits(module):
                    return replace(program, module=module)
        return None

    def has_program(self, bytes_max: int) -> bool:
        """Return whether a program is known that fits the pools of `bytes_max` bytes.

        Only calls that need more are streamed by rows. If a plan then shows that the
        program needs more than estimated, all programs are searched.
        """
        search = ProgramSearch(
            self.module,
            _sort_candidates(self.candidates, _BY_TIME),
            self.rows_of,
            self.oracle.estimate,
            percent=thresholds.UNLIMITED_PERCENT,
            bytes_max=bytes_max,
        )
        if not search.has_sequence:
            return False
        for program in self._within_flash(search.smallest()):
            if self.oracle.fits(program.module):
                return True
        return self.fastest_within(self.module.pools) is not None

    def programs(
        self, percent: int = thresholds.CANDIDATE_PERCENT_MAX
    ) -> tuple[ProgramCandidate, ...]:
        """Return the programs on the Pareto front that are within the flash budget.

        They are ordered from the fastest to the smallest in memory.
        """
        if percent not in self._programs:
            found = self._search(self.candidates, percent)
            self._programs[percent] = self._within_flash(found)
        return self._programs[percent]

    def _search(
        self, candidates: CandidatesPerCall, percent: int
    ) -> tuple[ProgramCandidate, ...]:
        ordered = _sort_candidates(candidates, _BY_TIME)
        estimate = self.oracle.estimate
        search = ProgramSearch(
            self.module, ordered, self.rows_of, estimate, percent=percent
        )
        return search.candidates()

    def _within_flash(
        self, programs: tuple[ProgramCandidate, ...]
    ) -> tuple[ProgramCandidate, ...]:
        limit = self._image_bytes_max
        if limit is None:
            return programs
        return tuple(program for program in programs if program.image_bytes <= limit)

    @property
    def _image_bytes_max(self) -> int | None:
        """The flash budget plus the bytes saved by coding; None without a budget."""
        if self.flash_bytes is None:
            return None
        return self.flash_bytes + (self.saved_bytes or 0)

    def _programs_of_small_kernels(self) -> tuple[ProgramCandidate, ...]:
        """Return the programs within the flash budget that use the smallest kernels.

        Raises DoesNotFitError if none is, UsageError if the input cannot be read row by
        row.
        """
        limit = self._image_bytes_max
        small: list[CallCandidates] = []
        for call, candidates in self._undivided:
            least_bytes = min((item.image_bytes for item in candidates), default=0)
            smallest = [item for item in candidates if item.image_bytes == least_bytes]
            small.append((call, tuple(smallest)))
        # Without a budget, the same search has found nothing in all kernels.
        found: tuple[ProgramCandidate, ...] = ()
        if limit is not None:
            found = self._search(small, thresholds.UNLIMITED_PERCENT)
        if limit is None or not found:
            raise UsageError(
                "--stream-input-rows: the operators that read the input cannot be "
                "computed row by row together.",
                hint="compile without it.",
            )
        within = self._within_flash(found)
        if not within:
            least_bytes = min(program.image_bytes for program in found)
            raise budget_error(least_bytes, limit, self.saved_bytes)
        return within

    def _best_whole_calls(self) -> ProgramCandidate:
        """Return the best program for the goal that computes no calls by rows."""
        module, estimate = self.module, self.oracle.estimate
        if self.goal not in thresholds.PROGRAM_PERCENT_MAX:
            ordered = self._fast_or_small()
            return ProgramSearch(module, ordered, _no_rows, estimate).whole_calls()
        cost_of = _blend_time_and_flash(self.candidates)
        near: list[CallCandidates] = []
        for call, candidates in self.candidates:
            near.append((call, _nearly_fastest(candidates, cost_of)))
        search = ProgramSearch(
            module,
            _sort_candidates(near, cost_of),
            _no_rows,
            estimate,
            percent=thresholds.SMALL_PERCENT_MAX,
            cost_of=cost_of,
        )
        best = min(search.candidates(), key=_balance)
        return self._with_shared_code(best) if self.goal is Minimize.BALANCED else best

    def _with_shared_code(self, best: ProgramCandidate) -> ProgramCandidate:
        """Return `best`, or a program whose kernels share more code.

        It needs no more memory and has no other default loops. The candidates of `best`
        are priced one by one; only whole images tell which kernels share their code.
        """
        time = sum(own[0].time for _, own in best.calls if own)
        time_max = thresholds.SHARED_TIME_PERMILLE * time // 1000

        def possible(candidates_per_call: CandidatesPerCall) -> CandidatesPerCall:
            scheduled = without_default_loops(candidates_per_call, best.calls)
            return within_time(scheduled, time_max)

        images = self._image_search(possible(self._undivided))
        own = images.image_of(best.calls)
        image = images.balanced_with(own, time_max)
        if image is own:
            return best
        chosen = image.chosen_of(possible(self._divided))
        search = ProgramSearch(self.module, chosen, _no_rows, self.oracle.estimate)
        program = search.whole_calls()
        return best if program.workspace_bytes > best.workspace_bytes else program

    def _image_search(self, candidates_per_call: CandidatesPerCall) -> ImageSearch:
        oracle = self.oracle
        return ImageSearch(candidates_per_call, oracle.shared_key, oracle.form)

    def _fast_or_small(self) -> CandidatesPerCall:
        """Return candidates for the goals `speed` and `size`, the best one first."""
        if self.goal is Minimize.SPEED:
            return _sort_candidates(self.candidates, _BY_TIME)
        images = self._image_search(self._undivided)
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
        limits = thresholds.STREAMED_SMALL_PERCENT
        if self.oracle.has_vectors:
            limits = thresholds.STREAMED_VECTORS_PERCENT
        fast: list[ProgramCandidate] = []
        for item in (best, *search.candidates()):
            if 100 * item.time <= _streamed_percent(item, best, limits) * best.time:
                fast.append(item)
        return min(fast, key=_balance)


def _compressible_bytes(module: IRModule) -> int:
    """Return an estimate of the bytes that coding of weights saves, without code."""
    saved_bytes = 0
    for constant in module.constants.values():
        if constant.size_bytes >= _CODED_BYTES_MIN:
            block = np.frombuffer(constant.data, np.uint8)[np.newaxis]
            coded_bytes = encode_blocks(block).nbytes + _DECODING_BYTES
            saved_bytes += max(0, constant.size_bytes - coded_bytes)
    return saved_bytes


def _streamed_percent(
    program: ProgramCandidate, whole: ProgramCandidate, limits: Mapping[int, int]
) -> int:
    """Return the maximum time of a program with streamed calls, in percent of `whole`.

    A program that needs far less memory may take more: `limits` by its share. They are
    higher with vectors, where rows of a layer take more time than the whole layer.
    """
    for share, percent in limits.items():
        if 100 * program.workspace_bytes <= share * whole.workspace_bytes:
            return percent
    return thresholds.STREAMED_TIME_PERCENT


def _balance(program: ProgramCandidate) -> int:
    """Return the product that the goal `balanced` minimizes (decision 0022)."""
    return (program.time * program.image_bytes) ** 2 * program.workspace_bytes


def _blend_time_and_flash(candidates_per_call: CandidatesPerCall) -> CandidateCost:
    """Return a cost in which a percent of time counts as much as one of flash."""
    fastest = fastest_candidates(candidates_per_call)
    time = sum(item.time for item in fastest)
    size = max(sum(item.image_bytes for item in fastest), 1)
    return lambda item: item.time + item.image_bytes * time // size


def _nearly_fastest(
    candidates: Sequence[LoweringCandidate], cost_of: CandidateCost
) -> tuple[LoweringCandidate, ...]:
    """Return the candidates not much slower; small constants permit more time.

    So does saved flash that is worth a multiple of the lost time in `cost_of`, except
    by default loops.
    """
    fastest = min(candidates, key=_BY_TIME, default=None)
    if fastest is None:
        return ()
    small_flash = thresholds.SMALL_FLASH_PERCENT * fastest.flash_bytes
    near: list[LoweringCandidate] = []
    for item in candidates:
        percent = thresholds.NEAR_PERCENT_MAX
        if 100 * item.flash_bytes <= small_flash:
            percent = thresholds.SMALL_PERCENT_MAX
        lost_time = item.time - fastest.time
        saved_flash = cost_of(fastest) - cost_of(item) + lost_time
        is_worth_it = saved_flash >= thresholds.WORTH_TIMES * lost_time
        if is_worth_it and item.rule != DEFAULT_SCHEDULE:
            percent = max(percent, thresholds.CANDIDATE_PERCENT_MAX)
        if 100 * item.time <= percent * fastest.time:
            near.append(item)
    return tuple(near)


def _no_rows(index: int, band: int) -> None:
    """No call has row kernels: a `RowsOf` for programs without row streaming."""


def _sort_candidates(
    candidates_per_call: CandidatesPerCall, cost_of: CandidateCost
) -> CandidatesPerCall:
    """Return each call with its candidates by ascending cost, then scratch."""

    def rank(item: LoweringCandidate) -> tuple[int, int]:
        return cost_of(item), item.scratch_bytes

    ordered: list[CallCandidates] = []
    for call, candidates in candidates_per_call:
        ordered.append((call, sorted(candidates, key=rank)))
    return ordered
