"""Lowering of every call in the graph to a list of candidates, best predicted or measured first.

Views have no candidates. Nothing is selected here, and the module is not changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from firmwright.base.errors import (
    InternalError,
    NotSupportedError,
    UnsupportedError,
    UnsupportedItem,
)
from firmwright.ir import tir
from firmwright.ir.core import Attr, Target
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import CONTROL_FLOW_OPS, Call, Function, TensorType, Value
from firmwright.ir.graph.opdef import SUBVIEWS_OF, OpCall, OpTable, RowReduction, RowWindow
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import Builder
from firmwright.ir.tir.cost_model import GENERIC_WEIGHTS, CostWeights, estimate_cost
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.tir.schedule import (
    DEFAULT_SCHEDULE,
    Config,
    LoweringCandidate,
    RowKernels,
    Schedule,
)
from firmwright.ir.tir.traversal import statements
from firmwright.ir.tuning_records import NO_TUNING_RECORDS, TuningRecords, layer_digest
from firmwright.lower.layer_measurements import LayerMeasurements
from firmwright.lower.rounding_sensitivity import has_discontinuity
from firmwright.ops.kernel import KERNEL_ALIGNMENT, Kernel

log = logging.getLogger(__name__)
_NO_ATTRS: Mapping[str, Attr] = MappingProxyType({})
_EXPRESSION_SHOWN_MAX = 50  # longer formulas do not fit in the comment


@dataclass(frozen=True, slots=True)
class LoweredCall:
    """A call with its candidates; a view or a call of a PrimFunc has none."""

    call: Call
    candidates: tuple[LoweringCandidate, ...]


def lower_module(
    module: IRModule,
    ops: OpTable,
    rules: Sequence[Schedule],
    intrinsics: IntrinsicTable,
    features: Callable[[Target], frozenset[str]],
    weights: Callable[[Target | None], CostWeights] = lambda target: GENERIC_WEIGHTS,
) -> tuple[LoweredCall, ...]:
    return Lowering(module, ops, rules, intrinsics, features, weights=weights).calls()


@dataclass(frozen=True, slots=True)
class Lowering:
    """Lowering of the calls of a module's entry; kernel names start with `prefix`."""

    module: IRModule
    ops: OpTable
    rules: Sequence[Schedule]
    intrinsics: IntrinsicTable
    features: Callable[[Target], frozenset[str]]
    tuning: TuningRecords = NO_TUNING_RECORDS
    weights: Callable[[Target | None], CostWeights] = lambda target: GENERIC_WEIGHTS
    prefix: str = ""

    @property
    def entry(self) -> Function:
        entry = self.module.entry
        if not isinstance(entry, Function):
            raise InternalError("lowering requires a graph function as entry")
        return entry

    def calls(self) -> tuple[LoweredCall, ...]:
        """Return every call with its candidates.

        Raises UnsupportedError with every call that cannot be lowered.
        """
        results = {value.name for value in self.entry.sinks}
        lowered: list[LoweredCall] = []
        refused: list[UnsupportedItem] = []
        for index, call in enumerate(self.entry.body):
            try:
                lowered.append(self._lowered(index, call, results))
            except NotSupportedError as reason:
                refused.append(UnsupportedItem(call.op, str(call.span), str(reason)))
        if refused:
            raise UnsupportedError(refused, where=self.module.name)
        stale = sum(self._stale(item) for item in lowered) if self.tuning.layers else 0
        if stale:
            log.warning(
                "%s: %d measurements of the tuning log are ignored: they are of kernels that are "
                "not made any more",
                self.module.name,
                stale,
            )
        return tuple(lowered)

    def space(self, index: int) -> tuple[tuple[str, Config], ...]:
        described = make_op_call(self.entry.body[index], self.module)
        schedules = self._available(self.entry.body[index])
        space = [
            (schedule.name, config)
            for schedule in schedules
            for config in schedule.tunable_configs(described)
        ]
        return (*space, (DEFAULT_SCHEDULE, {}))

    def kernel(self, index: int, rule_name: str, config: Config) -> LoweringCandidate:
        """Build call `index` with one schedule and configuration of its `space`."""
        call = self.entry.body[index]
        name, described = f"{call.op}_{index}", make_op_call(call, self.module)
        if rule_name == DEFAULT_SCHEDULE:
            return self._default(name, call, described, call)
        schedule = next(
            schedule for schedule in self._available(call) if schedule.name == rule_name
        )
        return self._scheduled(name, call, described, schedule, config, call)

    def candidates_per_call(self) -> list[tuple[Call, tuple[LoweringCandidate, ...]]]:
        return [(item.call, item.candidates) for item in self.calls()]

    def rows(self, index: int, band: int = 1) -> RowKernels | None:
        """Return kernels that compute call `index` in bands of rows, or None if impossible."""
        call = self.entry.body[index]
        if call.op.startswith("@"):
            return None
        rows = self.ops[call.op].row_access(make_op_call(call, self.module))
        if rows is None:
            return None
        name = f"{call.op}_{index}_row" + (f"s{band}" if band > 1 else "")
        if isinstance(rows, RowReduction):
            taking = self._folding(f"{name}_sums", call, rows, band)
            return RowKernels(rows, (taking,), self._finishing(name, call, rows))
        bands = rows.for_bands(band)
        return RowKernels(bands, self._offered(name, make_row_call(call, bands, band), call))

    def _lowered(self, index: int, call: Call, results: set[str]) -> LoweredCall:
        if call.op.startswith("@") or call.op in CONTROL_FLOW_OPS:
            return LoweredCall(call, ())
        if SUBVIEWS_OF in call.attrs:
            return LoweredCall(call, ())
        # A view that is a result of the model, or state, needs memory of its own, so it is copied.
        source = call.inputs[0] if call.inputs else None
        is_free = call.outputs[0].name not in results and source is not None
        is_view = self.ops[call.op].is_view
        if is_view and is_free and source is not None and source.constant is None:
            return LoweredCall(call, ())
        return LoweredCall(call, self._offered(f"{self.prefix}{call.op}_{index}", call, call))

    def _offered(self, name: str, call: Call, whole: Call) -> tuple[LoweringCandidate, ...]:
        """Return the candidates for `call` (`whole` or a part of it), best predicted first."""
        described, tuned = make_op_call(call, self.module), self._tuned(call)
        offered = [
            self._scheduled(name, call, described, schedule, config, whole)
            for schedule in self._fitting(call)
            for config in tuned.configs(schedule, described)
        ]
        offered.append(self._default(name, call, described, whole))
        return tuple(sorted(tuned.with_measured_costs(offered), key=lambda item: item.instructions))

    def _default(self, name: str, call: Call, described: OpCall, whole: Call) -> LoweringCandidate:
        kernel = Kernel(name, described, call.span)
        self.ops[call.op].lower(described, kernel)
        return self._finish(kernel, call, whole)

    def _tuned(self, call: Call) -> LayerMeasurements:
        target = self._target(call)
        if target is None or not self.tuning.layers:
            return LayerMeasurements({})
        layer = layer_digest(make_op_call(call, self.module), target)
        board = str(self.module.attrs.get("board", ""))
        return LayerMeasurements.from_measurements(self.tuning.measurements_for_layer(layer, board))

    def _stale(self, item: LoweredCall) -> int:
        tuned = self._tuned(item.call) if item.candidates else LayerMeasurements({})
        if not tuned.measured:
            return 0
        schedules = self._available(item.call)
        return tuned.count_stale(item.candidates, schedules, make_op_call(item.call, self.module))

    def _folding(self, name: str, call: Call, rows: RowReduction, band: int) -> LoweringCandidate:
        described = make_op_call(call, self.module)
        rules = (
            schedule
            for schedule in self._fitting(call)
            if schedule.fold and schedule.configs(described)
        )
        schedule = next(rules, None)
        x = described.input(0)
        kernel = Builder(name, call.span)
        row = kernel.buffer_param("x", x.dtype, (1, band, *x.shape[2:]), "in", KERNEL_ALIGNMENT)
        acc = kernel.buffer_param("acc", rows.dtype, (rows.count,), "inout", KERNEL_ALIGNMENT)
        accumulate = schedule.fold if schedule and schedule.fold else rows.accumulate
        accumulate(described, kernel, row, acc)
        return self._finish(kernel, call, call, schedule.name if schedule else DEFAULT_SCHEDULE)

    def _finishing(self, name: str, call: Call, rows: RowReduction) -> LoweringCandidate:
        described = make_op_call(call, self.module)
        kernel = Builder(name, call.span)
        acc = kernel.buffer_param("acc", rows.dtype, (rows.count,), "in", KERNEL_ALIGNMENT)
        y = described.output
        result = kernel.buffer_param("y", y.dtype, y.shape, "out", KERNEL_ALIGNMENT)
        rows.finish(described, kernel, acc, result)
        return self._finish(kernel, call, call)

    def _fitting(self, call: Call) -> list[Schedule]:
        goals = ("", str(self.module.attrs.get("optimize", "balanced")))
        return [schedule for schedule in self._available(call) if schedule.goal in goals]

    def _available(self, call: Call) -> list[Schedule]:
        target = self._target(call)
        available = self.features(target) if target else frozenset()
        schedules = [
            schedule
            for schedule in self.rules
            if schedule.op == call.op and schedule.requires <= available
        ]
        if any(schedule.fuses for schedule in schedules) and has_discontinuity(self.entry):
            return [schedule for schedule in schedules if not schedule.fuses]
        return schedules

    def _target(self, call: Call) -> Target | None:
        if call.target:
            return self.module.targets[call.target]
        return next(iter(self.module.targets.values()), None)

    def _scheduled(
        self,
        name: str,
        call: Call,
        described: OpCall,
        schedule: Schedule,
        config: Config,
        whole: Call,
    ) -> LoweringCandidate:
        kernel = Kernel(name, described, call.span)
        schedule.build(described, config, kernel)
        words = " ".join([schedule.name, *(f"{key}={value}" for key, value in config.items())])
        order = {"disable_scheduling": True} if schedule.disable_scheduling else {}
        candidate = self._finish(kernel, call, whole, words, order)
        return replace(candidate, rule=schedule.name, config=dict(config))

    def _finish(
        self,
        kernel: Builder,
        call: Call,
        whole: Call,
        schedule: str = "default",
        attrs: Mapping[str, Attr] = _NO_ATTRS,
    ) -> LoweringCandidate:
        """Return the built kernel with its attributes; its MACs are those of the whole call."""
        func = kernel.build(
            op=call.op,
            schedule=schedule,
            comment=format_shapes(call),
            macs=self.ops[call.op].macs(make_op_call(whole, self.module)),
            target=call.target or next(iter(self.module.targets), ""),
            **attrs,
        )
        scratch = sum(
            node.buffer.size_bytes
            for node in statements(func.body)
            if isinstance(node, tir.Allocate) and node.buffer.scope == "global"
        )
        price = estimate_cost(func, self.intrinsics, self.weights(self._target(call)))
        return LoweringCandidate(
            DEFAULT_SCHEDULE,
            {},
            func,
            dict(kernel.constants),
            scratch_bytes=scratch,
            flash_bytes=sum(constant.size_bytes for constant in kernel.constants.values()),
            code_bytes=price.code_bytes,
            instructions=price.instructions,
            cycles=price.cycles,
        )


def make_row_call(call: Call, rows: RowWindow, band: int) -> Call:
    """Return `call` for a band of output rows, reading only the rows that it needs."""

    def with_rows(value: Value | None, count: int) -> Value | None:
        if value is None or value.constant is not None:
            return value
        shape = (1, count, *value.type.shape[2:])
        return replace(value, type=replace(value.type, shape=shape))

    attrs = dict(call.attrs)
    if "padding" in attrs:
        padding = attrs["padding"]
        assert isinstance(padding, tuple)
        attrs["padding"] = (0, 0, *padding[2:])
    outputs = tuple(
        replace(value, type=replace(value.type, shape=(1, band, *value.type.shape[2:])))
        for value in call.outputs
    )
    inputs = tuple(
        value if index in rows.whole_inputs else with_rows(value, rows.window_height)
        for index, value in enumerate(call.inputs)
    )
    return replace(call, inputs=inputs, outputs=outputs, attrs=attrs)


def format_shapes(call: Call) -> str:
    """Format operator, shapes and activation: `conv2d 25x5x64 -> 25x5x64, relu`."""
    ins = [_shape(value.type) for value in call.variables]
    outs = [_shape(value.type) for value in call.outputs]
    activation = call.attrs.get("activation", "none")
    tail = "" if activation == "none" else f", {activation}"
    formula = str(call.attrs.get("formula", ""))
    tail += f", {formula}" if 0 < len(formula) <= _EXPRESSION_SHOWN_MAX else ""
    return f"{call.op} {', '.join(ins)} -> {', '.join(outs)}{tail}"


def _shape(kind: TensorType) -> str:
    shape = kind.shape[1:] if len(kind.shape) > 1 and kind.shape[0] == 1 else kind.shape
    return "x".join(map(str, shape)) or "scalar"
