"""Costs of a partition's regions, measured in images that run many regions once.

Regions that do not compile, build or run are found by halving the set, and their errors
recorded. If nothing can be measured, the cost model estimates regions of the core.
`Backend.cost` takes precedence over measurements.
"""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from firmwright.base.errors import FirmwrightError, InternalError, ToolMissingError
from firmwright.boards import load_board
from firmwright.extensions.tune.kernel_measurement import (
    MeasurementSetup,
    measure_operators,
)
from firmwright.extensions.tune.log_writer import (
    RegionCostKey,
    RegionCostLog,
    RegionCostRecord,
)
from firmwright.flows.predict.cost_prediction import predict_instructions
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.flows.verify.operator_conformance import budget_bytes
from firmwright.ir import tir
from firmwright.ir.core import UNCONSTRAINED, Span
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import (
    CONTROL_FLOW_OPS,
    Call,
    Function,
    TensorType,
    Value,
)
from firmwright.ir.module import IRModule
from firmwright.ir.pass_results import PassResults
from firmwright.ir.settings import ModelOrigin, Settings
from firmwright.ir.tir.traversal import prim_calls, used_constants
from firmwright.ops.registry import op_table
from firmwright.ops.tuning_records import MeasurementContext, layer_digest
from firmwright.partitioning.byoc import run_partition
from firmwright.partitioning.partition_result import RegionCost
from firmwright.partitioning.pattern_matching import (
    ActiveBackend,
    active_backends,
    make_match,
)
from firmwright.partitioning.per_target_passes import PassTimer
from firmwright.partitioning.regions import CallGroup, CoveredCalls
from firmwright.partitioning.target_resolution import CORE_TARGET_NAME
from firmwright.pipeline import (
    Compilation,
    Options,
    compile_model,
    configure_module,
    remaining_passes,
)
from firmwright.targets.backend_calls import library_version, modeled_cost

log = logging.getLogger(__name__)
REGIONS_PER_IMAGE = 48
"""Maximum number of regions in one image."""
_ORDER = "reorder-calls"
_FREE = RegionCost("ok", how="free")
"""The cost of regions without a choice and of views, which have no code."""
_UNKNOWN = RegionCost("unknown", how="")
_SAMPLES = 4
"""Number of samples; the last, which is random, is measured: counts depend on data."""


@dataclass(frozen=True)
class RegionCostEstimator:
    """Estimates regions' costs on a board; `setup` is None if none can be measured."""

    module: IRModule
    options: Options
    setup: MeasurementSetup | None
    at: MeasurementContext
    cost_log: RegionCostLog

    def estimate(
        self, function: Function, groups: Sequence[CallGroup]
    ) -> list[RegionCost]:
        """Return the cost of each group; unknown ones are measured and logged.

        Groups with equal keys are measured once.
        """
        known_costs = [self._known(function, group) for group in groups]
        keys = [self.key(function, group) for group in groups]
        open_keys: dict[RegionCostKey, CallGroup] = {}
        for key, group, cost in zip(keys, groups, known_costs, strict=True):
            if cost is None:
                open_keys.setdefault(key, group)
        budget = budget_bytes(load_board(self.options.board, self.options.board_dirs))
        for batch in _batches(list(open_keys.items()), function, budget):
            measured = self._measure_or_split(function, [group for _, group in batch])
            for (key, group), cost in zip(batch, measured, strict=True):
                described = _describe_region(function, group)
                self.cost_log.append(RegionCostRecord(key, described, cost))
        costs: list[RegionCost] = []
        for key, known in zip(keys, known_costs, strict=True):
            costs.append(known or self.cost_log.find(key) or _UNKNOWN)
        return costs

    def _known(self, function: Function, group: CallGroup) -> RegionCost | None:
        """Return the cost of a group that need not or cannot be measured, or None."""
        calls = [function.body[index] for index in group.calls]
        for call in calls:
            if call.op in CONTROL_FLOW_OPS or call.op.startswith("@"):
                return _FREE
        if not group.target and all(op_table()[call.op].is_view for call in calls):
            return _FREE
        for item in active_backends(self.module):
            if item.name == group.target:
                match = make_match(group.calls, item, function, self.module)
                modeled = modeled_cost(item.backend, match)
                if modeled is not None:
                    return RegionCost("ok", modeled, "modeled")
        if self.setup is None and group.target:
            return _UNKNOWN
        return self.cost_log.find(self.key(function, group))

    def key(self, function: Function, group: CallGroup) -> RegionCostKey:
        """Return the log key: structure, target and library, goal, and context."""
        target = self.module.targets[group.target or CORE_TARGET_NAME]
        described = str(target)
        for item in active_backends(self.module):
            if item.name == group.target:
                library = library_version(item.backend, target)
                described = f"{target} {item.backend.version} {library}".rstrip()
        return self._digest(function, group), described, self.options.optimize, self.at

    def _digest(self, function: Function, group: CallGroup) -> str:
        """Return a hash of the entries, the layers, and the tensors that connect them.

        Tensors are numbered in the order in which they appear, as their names do not
        matter.
        """
        numbers: dict[str, int] = {}
        rows: list[object] = [[covered.entry for covered in group.entries]]
        core = self.module.targets[CORE_TARGET_NAME]
        for index in group.calls:
            call = function.body[index]
            tensors: list[int | None] = []
            for value in (*call.inputs, *call.outputs):
                if value is None:
                    tensors.append(None)
                else:
                    tensors.append(numbers.setdefault(value.name, len(numbers)))
            rows.append([layer_digest(make_op_call(call, self.module), core), tensors])
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:24]

    # ---- measuring -------------------------------------------------------------------

    def _measure_or_split(
        self, function: Function, groups: Sequence[CallGroup]
    ) -> list[RegionCost]:
        """Return the costs of groups; a failing set is halved to isolate the cause."""
        try:
            return self._measured(function, groups)
        except (ToolMissingError, InternalError):
            raise
        except FirmwrightError as error:
            if len(groups) == 1:
                region = _describe_region(function, groups[0])
                log.warning("a region fails: %s: %s", region, error)
                return [RegionCost("failed", reason=str(error))]
        middle = len(groups) // 2
        first = self._measure_or_split(function, groups[:middle])
        second = self._measure_or_split(function, groups[middle:])
        return first + second

    def _measured(
        self, function: Function, groups: Sequence[CallGroup]
    ) -> list[RegionCost]:
        """Return the costs of groups that one image contains.

        The module of the regions has the group's number as the subgraph of its calls,
        by which the counts of operators are added to those of regions.
        """
        modules: dict[str, IRModule] = {}
        log.info("%d regions in one image", len(groups))
        options = isolated_region_options(self.options)
        regions = build_region_module(self.module, function, groups)
        prepared = run_passes_before_reordering(regions, options)
        compiled = compile_model(prepared, options, watch=modules.__setitem__)
        lowered = modules["lower-select"]
        region_of: dict[int, int] = {}
        for call in prim_calls(lowered.aot_main.body):
            if call.op >= 0:
                region_of[call.op] = call.span.subgraph
        counts: Counter[int] = Counter()
        for op, count in self._counts(compiled).items():
            counts[region_of.get(op, -1)] += count
        scratch = _scratch(compiled, region_of)
        constants = _constants(lowered, region_of)
        costs: list[RegionCost] = []
        for number in range(len(groups)):
            cost = RegionCost(
                "ok",
                count=counts[number],
                how="measured" if self.setup else "modeled",
                scratch=scratch.get(number, {}),
                constants_bytes=constants[number],
            )
            costs.append(cost)
        return costs

    def _counts(self, compiled: Compilation) -> Mapping[int, int]:
        """Return the measured or predicted counts by operator."""
        if self.setup is None:
            return predict_instructions(compiled)
        sample = generate_samples(compiled.module.io.inputs, _SAMPLES).samples[-1]
        counts, _ = measure_operators(compiled, self.setup, sample)
        return counts


def isolated_region_options(options: Options) -> Options:
    """Return the options for regions alone: none of them is for the whole program."""
    goal = "balanced" if options.optimize == "ram" else options.optimize
    return replace(
        options,
        name="",
        optimize=goal,
        planner="greedy_by_size",
        io_buffers="arena",
        preserve_input=False,
        stream_input_rows=False,
        recompute=False,
        ram_bytes=None,
        flash_bytes=None,
        pool_assignments=(),
        device_assignments=(),
        offload=(),
        passes=(),
    )


def run_passes_before_reordering(module: IRModule, options: Options) -> IRModule:
    """Run the passes before call reordering, and mark that as done: it is needless."""
    board = load_board(options.board, options.board_dirs)
    module = configure_module(module, board, options)
    for step in remaining_passes(module, options):
        if step.name == _ORDER:
            break
        module = step(module)
    return module.with_stage(_ORDER)


def _describe_region(function: Function, group: CallGroup) -> str:
    ops = " ".join(function.body[index].op for index in group.calls)
    return f"{group.target or CORE_TARGET_NAME}: {ops}"


def _batches(
    rows: Sequence[tuple[RegionCostKey, CallGroup]], function: Function, budget: int
) -> Iterator[list[tuple[RegionCostKey, CallGroup]]]:
    """Yield rows in sets whose tensors have at most `budget` bytes, or of one row."""
    batch: list[tuple[RegionCostKey, CallGroup]] = []
    batch_bytes = 0
    for key, group in rows:
        size = 0
        for index in group.calls:
            call = function.body[index]
            for value in (*call.variables, *call.outputs):
                size += value.type.size_bytes
        if batch and (batch_bytes + size > budget or len(batch) == REGIONS_PER_IMAGE):
            yield batch
            batch = []
            batch_bytes = 0
        batch.append((key, group))
        batch_bytes += size
    if batch:
        yield batch


# ---- regions side by side ------------------------------------------------------------


def build_region_module(
    module: IRModule, function: Function, groups: Sequence[CallGroup]
) -> IRModule:
    """Return a partitioned module of regions that share only inputs of equal types."""
    builder = _RegionModuleBuilder(function)
    assigned: list[CallGroup] = []
    for number, group in enumerate(groups):
        places = builder.add(number, group)
        if group.target:
            calls = tuple(places[index] for index in group.calls)
            entries: list[CoveredCalls] = []
            for covered in group.entries:
                moved = tuple(places[index] for index in covered.calls)
                entries.append(CoveredCalls(covered.entry, moved))
            assigned.append(CallGroup(calls, group.target, tuple(entries)))
    params = tuple(builder.params.values())
    main = Function("main", params, tuple(builder.body), tuple(builder.results))
    functions = {key: f for key, f in module.functions.items() if key != function.name}
    functions.pop("main", None)
    functions["main"] = main
    alone = replace(
        module,
        name="parts",
        functions=functions,
        requests=(),
        entry_name="main",
        origin=ModelOrigin(),
        settings=Settings(numerics=module.settings.numerics),
        results=PassResults(),
        attrs={},
    )

    def choose(
        function: Function, module: IRModule, active: Sequence[ActiveBackend]
    ) -> Sequence[CallGroup]:
        return assigned if function.name == "main" else ()

    return run_partition(alone, PassTimer(), choose)


class _RegionModuleBuilder:
    """Builds a function of regions; the tensors of one are part1.0, part1.1, ..."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.params: dict[tuple[TensorType, int], Value] = {}
        self.body: list[Call] = []
        self.results: list[Value] = []

    def add(self, number: int, group: CallGroup) -> dict[int, int]:
        """Add a region; return the new index of each call by its old one."""
        renamed: dict[str, Value] = {}
        places: dict[int, int] = {}
        for index in group.calls:
            call = self.function.body[index]
            inputs: list[Value | None] = []
            for operand in call.inputs:
                if operand is None:
                    inputs.append(None)
                else:
                    inputs.append(self._input(operand, renamed))
            for value in call.outputs:
                renamed[value.name] = Value(f"part{number}.{len(renamed)}", value.type)
            outputs = tuple(renamed[value.name] for value in call.outputs)
            span = Span("part", number, index, outputs[0].name)
            places[index] = len(self.body)
            call = replace(
                call,
                inputs=tuple(inputs),
                outputs=outputs,
                span=span,
                target="",
            )
            self.body.append(call)
        self.results += [renamed[name] for name in self._read_outside(group)]
        return places

    def _input(self, value: Value, renamed: dict[str, Value]) -> Value:
        """Return the new value of an operand; inputs of the region become parameters.

        Regions share parameters, but the inputs of one region are different parameters.
        """
        if value.constant is not None:
            return replace(value, virtual_device=UNCONSTRAINED)
        if value.name not in renamed:
            of_type = [other for other in renamed.values() if other.type == value.type]
            taken = sum(param in of_type for param in self.params.values())
            key = value.type, taken
            self.params.setdefault(key, Value(f"x{len(self.params)}", value.type))
            renamed[value.name] = self.params[key]
        return renamed[value.name]

    def _read_outside(self, group: CallGroup) -> list[str]:
        """Return the outputs read by other calls or the caller, at least the last."""
        read = {value.name for value in self.function.sinks}
        outputs: list[str] = []
        for index, call in enumerate(self.function.body):
            if index in group.calls:
                outputs += [value.name for value in call.outputs]
            else:
                read.update(value.name for value in call.variables)
        return [name for name in outputs if name in read] or outputs[-1:]


def _constants(module: IRModule, region_of: Mapping[int, int]) -> Counter[int]:
    """Return the bytes of constants that the kernels of each region read."""
    bytes_by_region: Counter[int] = Counter()
    for call in prim_calls(module.aot_main.body):
        kernel = module.functions[call.callee]
        if call.op in region_of and isinstance(kernel, tir.PrimFunc):
            region = region_of[call.op]
            for name in used_constants(kernel.body):
                bytes_by_region[region] += module.constants[name].size_bytes
    return bytes_by_region


def _scratch(
    compiled: Compilation, region_of: Mapping[int, int]
) -> dict[int, dict[str, int]]:
    """Return the maximum of live bytes in each pool while each region runs.

    Inputs and outputs are not counted, as the search adds the tensors between regions.
    """
    plan = compiled.summary.plan
    # The module is planned.
    assert plan is not None
    scratch: dict[int, dict[str, int]] = {}
    for time, op in enumerate(plan.operator_by_time):
        if op not in region_of:
            continue
        most = scratch.setdefault(region_of[op], {})
        now: Counter[str] = Counter()
        for buffer in plan.buffers:
            if buffer.lives_at(time) and buffer.kind in ("scratch", "activation"):
                now[buffer.pool] += buffer.size_bytes
        for pool, size in now.items():
            most[pool] = max(size, most.get(pool, 0))
    return scratch
