"""Pass `order`: reorder the calls of a graph if that reduces the peak of live bytes.

The peak has two measures: with inputs and outputs disjoint, and with outputs placed over inputs
that are no longer needed. An order is accepted only if neither rises and one falls. The result
depends only on the graph, not on names or hashes.
"""

from __future__ import annotations

from dataclasses import replace

from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.graph.opdef import OpTable
from firmwright.ir.module import IRModule
from firmwright.select import thresholds
from firmwright.select.schedule_graph import (
    PeakBytes,
    ScheduledTensor,
    ScheduleGraph,
    ScheduleState,
    min_peak_order,
)


def reorder_calls(module: IRModule, ops: OpTable) -> IRModule:
    """Return the module with the calls of its entry in the best order."""
    entry = module.entry
    if not isinstance(entry, Function):
        return module
    order = find_min_peak_order(build_schedule_graph(module, entry, ops))
    if order == tuple(range(len(entry.body))):
        return module
    return module.with_function(replace(entry, body=tuple(entry.body[i] for i in order)))


def find_min_peak_order(
    graph: ScheduleGraph, states_max: int = thresholds.ORDER_STATES_MAX
) -> tuple[int, ...]:
    """Return the best of the file's order and the results of beam search and exact search."""
    file_order = tuple(range(len(graph.calls)))
    file_peak = graph.peak(file_order)
    orders = [(file_peak, file_order)]
    beam_order = beam_search_order(graph)
    peak = graph.peak(beam_order)
    if peak.apart <= file_peak.apart and peak.shared <= file_peak.shared:
        orders.append((peak, beam_order))
    searched = _search_exactly(graph, min(orders)[0], states_max)
    if searched is not None:
        orders.append((graph.peak(searched), searched))
    return min(orders, key=lambda one: one[0])[1]


def _search_exactly(
    graph: ScheduleGraph, peak: PeakBytes, states_max: int
) -> tuple[int, ...] | None:
    """Return an order with the lowest disjoint peak, then the lowest overlapped one, or None."""
    best, left = min_peak_order(graph, PeakBytes(peak.apart - 1, peak.shared), 0, states_max)
    if best is not None:
        peak = graph.peak(best)
    again, _ = min_peak_order(graph, PeakBytes(peak.apart, peak.shared - 1), 1, left)
    return again or best


def beam_search_order(graph: ScheduleGraph, width: int = thresholds.BEAM_WIDTH) -> tuple[int, ...]:
    """Build an order call by call, keeping the `width` best partial orders of each length."""
    beginnings: dict[int, tuple[ScheduleState, tuple[int, ...]]] = {0: (graph.start(), ())}
    for _ in graph.calls:
        longer: dict[int, tuple[ScheduleState, tuple[int, ...]]] = {}
        for state, order in beginnings.values():
            for call in graph.ready(state):
                move = graph.after(state, call)
                previous = longer.get(move.done)
                if previous is None or move.peak < previous[0].peak:
                    longer[move.done] = move, (*order, call)
        ranked = sorted(longer.values(), key=lambda one: _rank(one[0]))
        beginnings = {state.done: (state, order) for state, order in ranked[:width]}
    ((_, order),) = beginnings.values()
    return order


def _rank(state: ScheduleState) -> tuple[PeakBytes, int, int]:
    return state.peak, state.live_bytes, state.done


def build_schedule_graph(module: IRModule, entry: Function, ops: OpTable) -> ScheduleGraph:
    return _ScheduleGraphBuilder(module, entry, ops).steps()


class _ScheduleGraphBuilder:
    """Numbers the tensors that need memory; a view has the same number as its source."""

    def __init__(self, module: IRModule, entry: Function, ops: OpTable) -> None:
        self.entry = entry
        self.ops = ops
        self.io = module.io
        self.results = {value.name for value in entry.results}
        self.own = {value.name for value in entry.sinks}
        self.state = {state.value.name for state in entry.state}
        self.lives_to_end = self.own | self.state
        if module.io.preserve_input:
            self.lives_to_end |= {value.name for value in entry.params}
        self.number: dict[str, int] = {}
        self.tensors: list[ScheduledTensor] = []
        self.maker: dict[str, int] = {}

    def steps(self) -> ScheduleGraph:
        for value in self.entry.sources:
            self._add(value, -1)
        reads = tuple(self._call(index, call) for index, call in enumerate(self.entry.body))
        readers = [0] * len(self.tensors)
        for index, tensors in enumerate(reads):
            for tensor in tensors:
                readers[tensor] |= 1 << index
        read = (replace(t, readers=r) for t, r in zip(self.tensors, readers, strict=True))
        return ScheduleGraph(
            tuple(read), reads, tuple(self._predecessors(call) for call in self.entry.body)
        )

    def _call(self, index: int, call: Call) -> tuple[int, ...]:
        for value in call.outputs:
            self.maker[value.name] = index
        names = dict.fromkeys(v.name for v in call.variables)
        reads = tuple(dict.fromkeys(self.number[name] for name in names))
        if self._is_view(call):
            self.number[call.outputs[0].name] = reads[0]
            return ()
        for value in call.outputs:
            self._add(value, index)
        return reads

    def _is_view(self, call: Call) -> bool:
        source = call.inputs[0] if call.inputs else None
        opdef = self.ops.get(call.op)
        is_view = opdef is not None and opdef.is_view and call.outputs[0].name not in self.own
        return is_view and source is not None and source.constant is None

    def _add(self, value: Value, maker: int) -> None:
        is_here = self.io.outputs_in_pools or value.name not in self.results
        if maker < 0:
            is_here = self.io.inputs_in_pools or value.name in self.state
        size_bytes = value.type.size_bytes if is_here else 0
        self.number[value.name] = len(self.tensors)
        self.tensors.append(ScheduledTensor(size_bytes, maker, 0, value.name in self.lives_to_end))

    def _predecessors(self, call: Call) -> int:
        mask = 0
        for value in call.inputs:
            if value is not None and value.name in self.maker:
                mask |= 1 << self.maker[value.name]
        return mask
