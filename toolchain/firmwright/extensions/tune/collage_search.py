"""Collage search: find the cheapest partition of a model by measuring its regions.

The search minimizes the sum of the regions' costs. Whole programs may cost more and are
measured too: the best sum (`collage`, with less memory if it does not fit), the same
with regions moved or divided so that devices work at the same time (`parallel`), the
order of preference (`eager`), and the core alone (`none`).
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TypeAlias

from firmwright.base.errors import DeviceError, DoesNotFitError, ToolFailedError
from firmwright.boards import load_board
from firmwright.boards.peripherals import DmaController
from firmwright.extensions.tune import collage
from firmwright.extensions.tune.collage import (
    PartitionCandidate,
    PartitionedProgram,
    describe_regions,
)
from firmwright.extensions.tune.core_groups import assigned_calls, groups_of_core
from firmwright.extensions.tune.kernel_measurement import (
    CYCLES,
    EXACT,
    TIMER,
    MeasurementSetup,
    measure_operators,
    measurement_context,
    session_opener,
)
from firmwright.extensions.tune.log_writer import RegionCostLog, RegionCostRecord
from firmwright.extensions.tune.operator_splits import split_candidates
from firmwright.extensions.tune.program_timeline import ProgramTimeline, shorten_run
from firmwright.extensions.tune.region_costs import RegionCostEstimator
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.flashing import run_flash_command
from firmwright.flows.measure.call_attribution import SharedKernelError
from firmwright.flows.measure.core_timeline import has_timeline
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.model.model import Model
from firmwright.flows.model.partition_methods import make_portable, prepare_module
from firmwright.flows.predict.run_schedule import modeled_times, schedule_run
from firmwright.flows.samples.sample_batches import measured_sample
from firmwright.ir.graph.devices import is_copy_device, is_core
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.ops.tuning_records import MeasurementContext
from firmwright.partitioning import partition_result
from firmwright.partitioning.byoc import run_partition
from firmwright.partitioning.device_map import DeviceMap
from firmwright.partitioning.engine_instances import engine_device
from firmwright.partitioning.partition_result import RegionCost
from firmwright.partitioning.pattern_matching import (
    ActiveBackend,
    PartitionStrategy,
    active_backends,
    all_matches,
    annotated_cover,
    greedy_cover,
    make_match,
    spread_over_equal_targets,
)
from firmwright.partitioning.per_target_passes import PassTimer
from firmwright.partitioning.regions import CallGroup, with_unmatched
from firmwright.partitioning.target_resolution import target_of
from firmwright.pipeline import Compilation, Options, compile_model
from firmwright.targets.backend_calls import modeled_cost

log = logging.getLogger(__name__)
_TRIES = 4
"""Maximum number of partitions to compile until one fits."""


@dataclass(frozen=True, slots=True)
class _SearchedFunction:
    """A function, the candidates for its regions, and the programs found of them."""

    function: Function
    candidates: Sequence[PartitionCandidate]
    """Those of one target, and those that divide an operator."""
    programs: Sequence[PartitionedProgram]
    """The Pareto-optimal programs, the best one by the goal first."""

    def program(self, attempt: int) -> PartitionedProgram:
        """Return the program for an attempt; further attempts have the last one."""
        return self.programs[min(attempt, len(self.programs) - 1)]


_Programs: TypeAlias = dict[str, PartitionedProgram]
"""The programs of the searched functions, by name."""


@dataclass(frozen=True, slots=True)
class CollageResult:
    """The result of a search, and the partitioned model."""

    partition: partition_result.PartitionResult
    model: Model


def search_collage(
    model: Model,
    options: Options,
    setup: MeasurementSetup | None,
    cost_log: RegionCostLog,
) -> CollageResult:
    """Search for a partition of the open calls; raise UsageError without backends.

    The costs are those of whole single runs: runs are not pipelined, and calls are not
    split over accelerators and cores. They are in cycles if backends declare cycles,
    except where others have devices whose instructions are counted.
    """
    divides_calls = not options.pipeline_runs
    devices: list[str] = []
    for name in options.devices:
        if is_core(name) or is_copy_device(name):
            devices.append(name)
    options = replace(options, pipeline_runs=False, devices=tuple(devices))
    module = prepare_module(model, options)
    if setup is not None and setup.method == EXACT and _is_declared_in_cycles(module):
        setup = replace(setup, method=CYCLES)
    at = measurement_context(options, setup.method if setup else "modeled")
    search = _CollageSearch(
        model, module, options, setup, at, cost_log, divides_calls=divides_calls
    )
    return search.run()


def _is_declared_in_cycles(module: IRModule) -> bool:
    """Return whether backends declare cycles, and all those with a device do."""
    active = active_backends(module)
    is_any_declared = False
    for function in _open_functions(module):
        for group in all_matches(function, module, active):
            (item,) = (item for item in active if item.name == group.target)
            match = make_match(group.calls, item, function, module)
            if modeled_cost(item.backend, match) is not None:
                is_any_declared = True
            elif item.backend.device:
                return False
    return is_any_declared


def _open_functions(module: IRModule) -> list[Function]:
    """Return the functions that no target has yet."""
    return [graph for graph in module.graphs if graph.body and not target_of(graph)]


@dataclass
class _CollageSearch:
    model: Model
    module: IRModule
    options: Options
    setup: MeasurementSetup | None
    at: MeasurementContext
    cost_log: RegionCostLog
    divides_calls: bool = True
    """Whether several engines may compute a call: not if runs are pipelined."""

    def run(self) -> CollageResult:
        """Return the cheapest program of all methods."""
        strategies = {"eager": _eager_cover, "none": annotated_cover}
        modules: dict[str, IRModule] = {}
        for how, choose in strategies.items():
            modules[how] = self._run_partition(choose)
        totals = {how: self._program_cost(module) for how, module in modules.items()}
        searched = self._search_functions()
        programs: dict[str, _Programs] = {}
        for attempt in range(_TRIES):
            picked = {
                item.function.name: self._spread(item, item.program(attempt))
                for item in searched
            }
            programs["collage"] = picked
            modules["collage"] = self._run_partition(_by_function(picked))
            totals["collage"] = self._program_cost(modules["collage"])
            if not totals["collage"].reason.startswith(_NO_ROOM):
                break
        parallel = self._shortened(searched, programs["collage"])
        if parallel != programs["collage"]:
            programs["parallel"] = parallel
            module = self._run_partition(_by_function(parallel))
            regions = self._regions(searched, parallel)
            modules["parallel"] = partition_result.with_shares(module, regions)
            totals["parallel"] = self._program_cost(modules["parallel"])
        order = [how for how in _ORDER if how in totals]
        best = min(order, key=lambda how: self._ranking_key(totals[how]))
        totals = partition_result.compare_programs(totals, best)
        if best in programs:
            lost = "" if best == "collage" else "the run ends later with it"
            parts = self._regions(searched, programs[best], lost)
        else:
            chosen = self._programs(searched, strategies[best])
            lost = f"the program with it takes {totals['collage'].reason}"
            parts = self._regions(searched, chosen, lost)
        targets = ", ".join(map(str, self.module.targets.values()))
        result = partition_result.PartitionResult(
            model=self.model.name,
            board=self.options.board,
            targets=targets,
            goal=self.options.optimize,
            method=self.at.method,
            unit=self._unit(),
            chosen=best,
            parts=parts,
            totals=totals,
        )
        partitioned = make_portable(self.model, modules[best], self.options)
        return CollageResult(result, partitioned)

    def _run_partition(self, choose: PartitionStrategy) -> IRModule:
        return run_partition(self.module, PassTimer(), choose)

    # ---- parts -----------------------------------------------------------------------

    def _search_functions(self) -> list[_SearchedFunction]:
        """Search the functions that no target has yet."""
        return [self._search_function(graph) for graph in _open_functions(self.module)]

    def _search_function(self, function: Function) -> _SearchedFunction:
        active = active_backends(self.module)
        matches = all_matches(function, self.module, active)
        assigned = assigned_calls(function)
        groups = [*matches, *groups_of_core(function, matches), *assigned]
        estimator = RegionCostEstimator(
            self.module, self.options, self.setup, self.at, self.cost_log
        )
        costs = estimator.estimate(function, groups)
        candidates: list[PartitionCandidate] = []
        for group, cost in zip(groups, costs, strict=True):
            candidates.append(PartitionCandidate(group, cost))
        eager = [*greedy_cover(function, self.module, active), *assigned]
        cover = with_unmatched(function, eager)
        usable = collage.restrict_to_known_costs(candidates, cover)
        programs = collage.search_partitions(function, usable, self._transfer)
        if self.options.optimize == "ram":
            programs = tuple(sorted(programs, key=lambda p: (p.peak_bytes, p.count)))
        if self.divides_calls:
            candidates += split_candidates(function, self.module, usable)
        return _SearchedFunction(function, candidates, programs)

    def _shortened(
        self, searched: Sequence[_SearchedFunction], programs: _Programs
    ) -> _Programs:
        """Return the programs with moves that let devices work at the same time.

        There are none if memory decides, or if nothing is measured.
        """
        if self.setup is None or self.options.optimize == "ram":
            return programs
        devices: dict[str, str] = {}
        for item in active_backends(self.module):
            devices[item.name] = engine_device(self.module, item.name)
        shortened: _Programs = {}
        for searched_function in searched:
            function = searched_function.function
            timeline = ProgramTimeline(function, devices, cache(self._transfer))
            shortened[function.name] = shorten_run(
                timeline, programs[function.name], searched_function.candidates
            )
        return shortened

    def _spread(
        self, item: _SearchedFunction, program: PartitionedProgram
    ) -> PartitionedProgram:
        """Return a program with its calls spread over equal instances of engines."""
        active = active_backends(self.module)
        groups = spread_over_equal_targets(
            item.function, self.module, program.groups, active
        )
        targets = {group.calls: group.target for group in groups}
        parts: list[PartitionCandidate] = []
        for part in program.parts:
            target = targets.get(part.group.calls, part.group.target)
            group = replace(part.group, target=target)
            parts.append(replace(part, group=group))
        return replace(program, parts=tuple(parts))

    def _transfer(self, source: str, to: str, size_bytes: int) -> int:
        """Return the cycles of a transfer; each of the two targets may add some."""
        device_map = DeviceMap(self.module)
        cycles = 0
        for target in {source, to}:
            cycles += device_map.transfer_cycles(target, size_bytes, self._dma)
        return cycles

    @cached_property
    def _dma(self) -> DmaController | None:
        return load_board(self.options.board, self.options.board_dirs).dma

    def _programs(
        self, searched: Sequence[_SearchedFunction], choose: PartitionStrategy
    ) -> _Programs:
        """Return the regions that a strategy chooses per function, without totals."""
        programs_by_name: _Programs = {}
        active = active_backends(self.module)
        for item in searched:
            function = item.function
            costs = {(c.group.target, c.group.calls): c.cost for c in item.candidates}
            chosen = choose(function, self.module, active)
            parts: list[PartitionCandidate] = []
            for group in with_unmatched(function, [*chosen, *assigned_calls(function)]):
                cost = costs.get((group.target, group.calls), RegionCost("unknown"))
                parts.append(PartitionCandidate(group, cost))
            parts.sort(key=lambda part: part.group.calls)
            programs_by_name[function.name] = PartitionedProgram(tuple(parts), 0, 0)
        return programs_by_name

    def _regions(
        self,
        searched: Sequence[_SearchedFunction],
        programs: _Programs,
        lost: str = "",
    ) -> tuple[partition_result.PartitionedRegion, ...]:
        """Return the regions of all functions' programs, with their alternatives."""
        regions: list[partition_result.PartitionedRegion] = []
        for item in searched:
            parts = programs[item.function.name].parts
            regions += describe_regions(item.function, parts, item.candidates, lost)
        return tuple(regions)

    # ---- whole programs --------------------------------------------------------------

    def _ranking_key(self, total: partition_result.ProgramCost) -> tuple[float, ...]:
        """Return a key that is less for better programs; no count is the worst."""
        if total.count is None:
            return (float("inf"),)
        if self.options.optimize == "ram":
            return total.workspace_bytes, total.count
        return (total.count,)

    def _program_cost(self, module: IRModule) -> partition_result.ProgramCost:
        """Return the cost of a whole program from the log, or measure and log it."""
        try:
            compiled = compile_model(module, self.options, source=self.model.source)
        except DoesNotFitError as error:
            return partition_result.ProgramCost(None, reason=f"{_NO_ROOM} {error}")
        pools = {name: pool.bytes for name, pool in compiled.summary.pools.items()}
        key = compiled.model_id, "", self.options.optimize, self.at
        cost = self.cost_log.find(key)
        if cost is None:
            cost = self._run(compiled)
            what = f"{self.model.name} as a whole"
            self.cost_log.append(RegionCostRecord(key, what, cost))
        if cost.status != "ok":
            return partition_result.ProgramCost(None, pools, reason=cost.reason)
        return partition_result.ProgramCost(cost.count, pools, cost.constants_bytes)

    def _run(self, compiled: Compilation) -> RegionCost:
        """Measure the whole program.

        `constants_bytes` of the result is the size of the image in flash.
        """
        if self.setup is None:
            return RegionCost("unknown", reason="the board cannot be measured")
        try:
            image = build_image(compiled)
            count_measured = self._measured(compiled)
        except (ToolFailedError, DoesNotFitError, DeviceError) as error:
            return RegionCost("failed", reason=str(error))
        return RegionCost("ok", count_measured, constants_bytes=image.sizes.flash_bytes)

    def _measured(self, compiled: Compilation) -> int:
        """Return the length of a run, in the unit of the search.

        The timer counts if functions that several operators share would mix counts.
        """
        assert self.setup is not None
        if self.setup.method != TIMER:
            opener, in_cycles = session_opener(self.setup), self.setup.method == CYCLES
            try:
                counts = measure_instructions(
                    compiled, open_with=opener, in_cycles=in_cycles
                )
                return counts.until_over(in_cycles=in_cycles)
            except SharedKernelError:
                log.info("%s: counted by the timer", compiled.module.name)
        if not self.setup.port and has_timeline(compiled):
            return self._scheduled(compiled)
        image = build_image(compiled)
        run_flash_command(image, self.setup.flash)
        sample = measured_sample(compiled.module)
        with session_opener(self.setup)(compiled, image=image) as session:
            run_count: int = session.device.measure(sample)
        return run_count

    def _scheduled(self, compiled: Compilation) -> int:
        """Return the length of the schedule of operators that the timer counts."""
        assert self.setup is not None
        by_timer = replace(self.setup, method=TIMER)
        sample = measured_sample(compiled.module)
        counts, _ = measure_operators(compiled, by_timer, sample)
        times = modeled_times(compiled)
        schedule = schedule_run(compiled.module, counts, times)
        return max((call.end for call in schedule), default=0)

    def _unit(self) -> str:
        if self.setup is None:
            return "predicted instructions"
        if self.setup.port or self.setup.method == CYCLES:
            return "cycles"
        return "instructions"


_ORDER = ("collage", "parallel", "eager", "none")
"""The programs, the one that is chosen first if several cost the same."""
_NO_ROOM = "it does not fit:"
"""The beginning of the reason of programs that do not fit the board."""


def _eager_cover(
    function: Function, module: IRModule, active: Sequence[ActiveBackend]
) -> list[CallGroup]:
    """Return the greedy cover as a trial, without warnings."""
    return greedy_cover(function, module, active)


def _by_function(programs: _Programs) -> PartitionStrategy:
    """Return a strategy that applies programs by the functions' names."""

    def choose(
        function: Function, module: IRModule, active: Sequence[ActiveBackend]
    ) -> list[CallGroup]:
        groups = programs[function.name].groups if function.name in programs else []
        return [group for group in groups if group not in assigned_calls(function)]

    return choose
