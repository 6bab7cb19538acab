"""Lowering of every call in the graph to candidates, by predicted or measured cost.

Views have no candidates. Nothing is selected here, and the module is not changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from firmwright.base import errors
from firmwright.base.progress_log import ProgressLog
from firmwright.ir.core import Attr, Target
from firmwright.ir.graph.attributes.movement import is_subview
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import CONTROL_FLOW_OPS, Call, Function
from firmwright.ir.module import IRModule
from firmwright.ir.program_record import ProgramRecord, digest_kernel
from firmwright.ir.settings import Minimize
from firmwright.ir.tir.builder import Builder
from firmwright.ir.tir.cost_model import GENERIC_WEIGHTS, CostWeights, estimate_cost
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.weight_stand_ins import StandIn, with_stand_ins
from firmwright.lower.available_schedules import available_schedules
from firmwright.lower.equal_layers import EqualLayers, NamedLayer, layer_key
from firmwright.lower.kernel_maker import KernelMaker, has_same_code_in
from firmwright.lower.kernel_memo import BuiltKernel, KernelMemo, KernelRequest
from firmwright.lower.kernel_texts import format_schedule, format_shapes
from firmwright.lower.layer_measurements import LayerMeasurements
from firmwright.lower.lowered_call import LoweredCall
from firmwright.lower.recorded_kernels import (
    difference_error,
    missing_kernel_error,
    recorded_form,
)
from firmwright.lower.reduction_kernels import accumulation_kernel, finish_kernel
from firmwright.lower.row_calls import make_row_call
from firmwright.lower.short_loops import calls_with_short_loops
from firmwright.lower.stall_cycles import with_stall_cycles
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpTable, RowReduction
from firmwright.ops.schedule import (
    DEFAULT_SCHEDULE,
    NO_CONFIG,
    LoweringCandidate,
    RowKernels,
    Schedule,
    ScheduleConfig,
)
from firmwright.ops.tuning_records import (
    DEFAULT_CHOICE,
    NO_TUNING_RECORDS,
    ConfiguredSchedule,
    TuningRecords,
    configured_schedule,
    layer_digest,
)

log = logging.getLogger(__name__)
_STALE_MESSAGE = (
    "%s: %d measurements of the tuning log are ignored: they are of kernels that are "
    "not made any more"
)


@dataclass(frozen=True)
class Lowering:
    """Lowering of the calls of a module's entry; kernel names start with `prefix`."""

    module: IRModule
    ops: OpTable
    rules: Sequence[Schedule[ScheduleConfig]]
    intrinsics: IntrinsicTable
    features: Callable[[Target], frozenset[str]]
    tuning: TuningRecords = NO_TUNING_RECORDS
    weights: Callable[[Target | None], CostWeights] = lambda target: GENERIC_WEIGHTS
    prefix: str = ""
    record: ProgramRecord | None = None
    kernels: KernelMemo = field(default_factory=KernelMemo)
    equal_layers: EqualLayers | None = None  # set if candidates may be stand-ins
    keeps_loops: bool = False  # loops have the same form for all extents

    @property
    def entry(self) -> Function:
        return self.module.entry_graph

    def calls(self) -> tuple[LoweredCall, ...]:
        """Return every call with its candidates.

        UnsupportedError lists all that have none.
        """
        results = {value.name for value in self.entry.sinks}
        lowered: list[LoweredCall] = []
        refused: list[errors.UnsupportedItem] = []
        what = f"{self.module.name}: kernels of operator"
        progress = ProgressLog(log, what, len(self.entry.body))
        for index, call in enumerate(self.entry.body):
            progress.show(index)
            try:
                lowered.append(self._lowered(index, call, results))
            except errors.NotSupportedError as reason:
                where = str(call.span)
                refused.append(errors.UnsupportedItem(call.op, where, str(reason)))
        if refused:
            raise errors.UnsupportedError(refused, where=self.module.name)
        stale = sum(map(self._stale, lowered)) if self.tuning.layers else 0
        if stale:
            log.warning(_STALE_MESSAGE, self.module.name, stale)
        return tuple(lowered)

    def space(self, index: int) -> tuple[ConfiguredSchedule, ...]:
        """Return every schedule and configuration that can build call `index`."""
        call = self.entry.body[index]
        op_call = make_op_call(call, self.module)
        space: list[ConfiguredSchedule] = []
        for schedule in self._available(call):
            for config in schedule.tunable_configs(op_call):
                space.append(configured_schedule(schedule.name, config))
        return (*space, DEFAULT_CHOICE)

    def kernel(self, index: int, choice: ConfiguredSchedule) -> LoweringCandidate:
        """Build the kernel of call `index` by a `choice` of its `space`."""
        call = self.entry.body[index]
        name = f"{call.op}_{index}"
        if choice == DEFAULT_CHOICE:
            return self._default(name, call, call)
        for schedule, config in self._configured(call, choice.rule):
            if configured_schedule(schedule.name, config) == choice:
                return self._scheduled(name, call, schedule, config, call)
        raise errors.InternalError(f"{name} has no kernel with the schedule {choice}")

    def rows(self, index: int, band: int = 1) -> RowKernels | None:
        """Return kernels that compute call `index` in bands of rows, or None."""
        call = self.entry.body[index]
        if call.op.startswith("@"):
            return None
        rows = self.ops[call.op].row_access(make_op_call(call, self.module))
        if rows is None:
            return None
        name = f"{call.op}_{index}_row"
        if band > 1:
            name += f"s{band}"
        if isinstance(rows, RowReduction):
            return RowKernels(
                rows,
                partial(self._accumulations, f"{name}_sums", call, rows, band),
                partial(self._row_finish, name, call, rows),
            )
        bands = rows.for_bands(band)
        part = make_row_call(call, bands, band)
        return RowKernels(bands, partial(self._offered, name, part, call))

    def _lowered(self, index: int, call: Call, results: set[str]) -> LoweredCall:
        """Return a call with its candidates; values in `results` leave the entry."""
        has_kernel = call.op.startswith("@") or call.op in CONTROL_FLOW_OPS
        if has_kernel or is_subview(call.attrs):
            return LoweredCall(call, ())
        # A view that is a result of the model, or state, needs memory of its own, so it
        # is copied.
        is_copied = call.outputs[0].name in results
        is_view = self.ops[call.op].is_view and not is_copied
        if is_view and call.inputs[0] in call.variables:
            return LoweredCall(call, ())
        name = f"{self.prefix}{call.op}_{index}"
        if self.record is not None and name not in self.record.kernels:
            if self.prefix or not self.record.is_streamed(index):
                raise missing_kernel_error(self.module, self.record, name)
            return LoweredCall(call, ())
        return LoweredCall(call, self._offered(name, call, call))

    def _offered(
        self, name: str, call: Call, whole: Call
    ) -> tuple[LoweringCandidate, ...]:
        """Return the candidates for `call` (`whole` or a part of it) by ascending cost.

        If the code must suit all weights, those are left out that other weights change.
        """
        if self.record is not None:
            return self._recorded(self.record, name, call, whole)
        offered = self._possible(name, call, whole)
        if not self.module.settings.weight_independent:
            return offered
        makers = [partial(other.built, name, call, whole) for other in self._variants]
        same = [item for item in offered if has_same_code_in(item, makers)]
        if not same:
            what = "kernels that all depend on the values of the weights"
            raise errors.NotSupportedError(what)
        return tuple(same)

    @cached_property
    def _variants(self) -> tuple[Lowering, ...]:
        """The lowering of the module with each kind of other weights."""
        variants: list[Lowering] = []
        for kind in StandIn:
            variants.append(replace(self, module=with_stand_ins(self.module, kind)))
        return tuple(variants)

    def built(
        self, name: str, call: Call, whole: Call, words: str
    ) -> LoweringCandidate | None:
        """Return the kernel with the schedule and configuration `words`, or None."""
        if words == DEFAULT_SCHEDULE:
            return self._default(name, call, whole)
        for schedule, config in self._configured(call, words.partition(" ")[0]):
            if format_schedule(schedule.name, config) == words:
                return self._scheduled(name, call, schedule, config, whole)
        return None

    def _configured(
        self, call: Call, rule: str
    ) -> Iterator[tuple[Schedule[ScheduleConfig], ScheduleConfig]]:
        """Yield the schedule `rule` with each configuration that it has for a call."""
        op_call = make_op_call(call, self.module)
        for schedule in self._available(call):
            if schedule.name == rule:
                for config in schedule.tunable_configs(op_call):
                    yield schedule, config

    def _recorded(
        self, record: ProgramRecord, name: str, call: Call, whole: Call
    ) -> tuple[LoweringCandidate, ...]:
        """Return the recorded kernel alone, or none if there is none of that name."""
        kernel = record.kernels.get(name)
        if kernel is None:
            return ()
        settings = replace(self.module.settings, all_channels=True)
        wide = replace(self, module=replace(self.module, settings=settings))
        # The record may come from weights with constant channels, or from a compilation
        # for all weights, whose kernels skip none.
        makers = [partial(one.built, name, call, whole) for one in (self, wide)]
        form = recorded_form(kernel, makers)
        if form is None:
            raise self.difference(record, name, call, whole)
        return (form,)

    def difference(
        self, record: ProgramRecord, name: str, call: Call, whole: Call
    ) -> errors.MismatchError:
        """Return the error for a recorded kernel that is not of these weights."""
        kernel = record.kernels[name]

        def suits(module: IRModule) -> bool:
            other = replace(self, module=module)
            built = other.built(name, call, whole, kernel.schedule)
            return built is not None and digest_kernel(built.function) == kernel.code

        index = self.entry.body.index(whole)
        return difference_error(self.module, record, index, name, suits)

    def _possible(
        self, name: str, call: Call, whole: Call
    ) -> tuple[LoweringCandidate, ...]:
        op_call, tuned = make_op_call(call, self.module), self._tuned(call)
        choices: list[tuple[Schedule[ScheduleConfig], ScheduleConfig]] = []
        for schedule in self._fitting(call):
            for config in tuned.configs(schedule, op_call):
                if call is whole or not config.is_for_overlap:
                    choices.append((schedule, config))
        if self.equal_layers is None or call is not whole:
            return self._built_all(name, call, whole, choices)
        words = [format_schedule(schedule.name, config) for schedule, config in choices]
        key = layer_key(op_call, (self._target_name(call), *words))
        layer = NamedLayer(name, call)
        build_all = partial(self._built_all, name, call, whole, choices)
        return self.equal_layers.offered(key, layer, self.maker(layer), build_all)

    def maker(self, layer: NamedLayer) -> KernelMaker:
        """Return the function that builds a kernel of `layer`; see `built`."""
        return partial(self.built, layer.name, layer.call, layer.call)

    def _built_all(
        self,
        name: str,
        call: Call,
        whole: Call,
        choices: Sequence[tuple[Schedule[ScheduleConfig], ScheduleConfig]],
    ) -> tuple[LoweringCandidate, ...]:
        """Return the default kernel and those of `choices`, by ascending cost."""
        offered = [self._default(name, call, whole)]
        most = offered[0].instructions
        for schedule, config in choices:
            candidate = self._scheduled(name, call, schedule, config, whole)
            # A schedule that trades time for bytes is offered only within its limit, in
            # multiples of the time of the default kernel.
            limit = schedule.time_max * most
            if not schedule.time_max or candidate.instructions <= limit:
                offered.append(candidate)
        priced = self._tuned(call).with_measured_costs(offered)
        return tuple(
            sorted(priced, key=lambda item: item.instructions + item.stall_cycles)
        )

    def _default(self, name: str, call: Call, whole: Call) -> LoweringCandidate:
        """Return the kernel of the operator's definition, which suits every target."""
        lower = self.ops[call.op].lower

        def build(kernel: Kernel) -> BuiltKernel:
            lower(kernel.call, kernel)
            return self._finish(kernel, call, whole)

        return self._built_once(name, call, whole, lower, NO_CONFIG, build)

    def _built_once(
        self,
        name: str,
        call: Call,
        whole: Call,
        method: Callable[..., None],
        config: ScheduleConfig,
        build: Callable[[Kernel], BuiltKernel],
    ) -> LoweringCandidate:
        """Return the kernel that `build` writes, or an equal one made earlier."""
        op_call = make_op_call(call, self.module)
        request = KernelRequest(
            name=name,
            span=call.span,
            call=op_call,
            whole_outputs=tuple(value.type for value in whole.outputs),
            target_name=self._target_name(call),
            method=method,
            config=config,
        )
        kernel = self.kernels.find(request)
        if kernel is None:
            kernel = build(Kernel(name, op_call, call.span, self.keeps_loops))
            self.kernels.add(request, kernel)
        return self._priced(kernel, call)

    def _tuned(self, call: Call) -> LayerMeasurements:
        """Return the measurements of a call in the tuning log."""
        target = self._target(call)
        if target is None or not self.tuning.layers:
            return LayerMeasurements({})
        layer = layer_digest(make_op_call(call, self.module), target)
        board = self.module.settings.board
        measurements = self.tuning.measurements_for_layer(layer, board)
        return LayerMeasurements.from_measurements(measurements)

    def _stale(self, item: LoweredCall) -> int:
        """Return the number of measurements of a call that apply to no kernel."""
        if not item.candidates:
            return 0
        tuned = self._tuned(item.call)
        if not tuned.measured:
            return 0
        schedules = self._available(item.call)
        op_call = make_op_call(item.call, self.module)
        return tuned.count_stale(item.candidates, schedules, op_call)

    def _accumulations(
        self, name: str, call: Call, rows: RowReduction, band: int
    ) -> tuple[LoweringCandidate, ...]:
        """Return the one kernel that adds a band of rows to the sums of a reduction.

        The first schedule that can accumulate rows builds it, else the operator's
        definition.
        """
        op_call = make_op_call(call, self.module)
        schedule_name, accumulate = DEFAULT_SCHEDULE, rows.accumulate
        for schedule in self._fitting(call):
            if schedule.fold and schedule.configs(op_call):
                schedule_name, accumulate = schedule.name, schedule.fold
                break
        kernel = accumulation_kernel(name, call.span, op_call, rows, band, accumulate)
        return (self._priced(self._finish(kernel, call, call, schedule_name), call),)

    def _row_finish(
        self, name: str, call: Call, rows: RowReduction
    ) -> LoweringCandidate:
        """Return the kernel that computes the result of a reduction from the sums."""
        kernel = finish_kernel(name, call.span, make_op_call(call, self.module), rows)
        return self._priced(self._finish(kernel, call, call), call)

    def _fitting(self, call: Call) -> list[Schedule[ScheduleConfig]]:
        objective = self.module.settings.objective
        # With a RAM budget, kernels that save RAM compete, too, whatever the goal is.
        goals = {"", objective.minimize}
        if not objective.has_free_ram:
            goals.add(Minimize.RAM)
        available = self._available(call)
        return [schedule for schedule in available if schedule.goal in goals]

    def _available(self, call: Call) -> list[Schedule[ScheduleConfig]]:
        """Return the schedules that can build a kernel for a call on its target."""
        target, short = self._target(call), self._short_loops
        features = self.features(target) if target else frozenset()
        return available_schedules(self.rules, call, self.module, features, short)

    @cached_property
    def _short_loops(self) -> frozenset[str]:
        return calls_with_short_loops(self.module, self.ops)

    def _target_name(self, call: Call) -> str:
        return call.target or next(iter(self.module.targets), "")

    def _target(self, call: Call) -> Target | None:
        """Return the target of a call, by default the first of the module."""
        if call.target:
            return self.module.targets[call.target]
        return next(iter(self.module.targets.values()), None)

    def _scheduled(
        self,
        name: str,
        call: Call,
        schedule: Schedule[ScheduleConfig],
        config: ScheduleConfig,
        whole: Call,
    ) -> LoweringCandidate:
        words = format_schedule(schedule.name, config)

        def build(kernel: Kernel) -> BuiltKernel:
            schedule.build(kernel.call, config, kernel)
            built = self._finish(
                kernel, call, whole, words, **schedule.kernel_attributes
            )
            return replace(built, rule=schedule.name, config=config)

        return self._built_once(name, call, whole, schedule.build, config, build)

    def _finish(
        self,
        kernel: Builder,
        call: Call,
        whole: Call,
        schedule: str = DEFAULT_SCHEDULE,
        **attrs: Attr,
    ) -> BuiltKernel:
        """Return the built kernel with its attributes and the whole call's MACs."""
        func = kernel.build(
            op=call.op,
            schedule=schedule,
            comment="\n".join([format_shapes(call), *kernel.notes]),
            macs=self.ops[call.op].macs(make_op_call(whole, self.module)),
            target=self._target_name(call),
            **attrs,
        )
        return BuiltKernel(self.kernels.share_code(func), dict(kernel.constants))

    def _priced(self, kernel: BuiltKernel, call: Call) -> LoweringCandidate:
        """Return the kernel with its cost on the target of `call`."""
        target = self._target(call)
        weights = self.weights(target)
        estimate = partial(estimate_cost, kernel.function, self.intrinsics, weights)
        cost = self.kernels.cost(kernel, target, estimate)
        candidate = kernel.with_cost(cost, self.kernels.scratch_bytes(kernel))
        return with_stall_cycles(candidate, call, self.module)
