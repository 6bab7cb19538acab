"""The order of the calls of a graph: another than the file's where that takes fewer live bytes.

In: a module whose entry is a graph function, and the table of operators. Out: the same module, the
body of its entry permuted or, mostly, as it was. A step is measured twice: with its inputs and
outputs apart, and with outputs in the place of the inputs that die there. The plan lies between the
two, so an order is taken only if the most of neither figure rises and one of them falls. Invariant:
the result depends on the graph alone, on no name and no hash; calls that nothing tells apart stay
in the file's order.
"""

from __future__ import annotations

from dataclasses import replace

from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.graph.opdef import OpTable
from firmwright.ir.module import IRModule
from firmwright.select.schedule_graph import (
    STATES_MAX,
    PeakBytes,
    ScheduledTensor,
    ScheduleGraph,
    ScheduleState,
    min_peak_order,
)

BEAM_WIDTH = 32
"""How many orders the greedy scheduling pursues at once."""


def reorder_calls(module: IRModule, ops: OpTable) -> IRModule:
    """The module with the calls of its entry in the best order known."""
    entry = module.entry
    if not isinstance(entry, Function):
        return module
    order = find_min_peak_order(build_schedule_graph(module, entry, ops))
    if order == tuple(range(len(entry.body))):
        return module
    return module.with_function(replace(entry, body=tuple(entry.body[i] for i in order)))


def find_min_peak_order(steps: ScheduleGraph, states_max: int = STATES_MAX) -> tuple[int, ...]:
    """Of the file's order, a greedy one's and an exact search's, that with the least peak."""
    kept = tuple(range(len(steps.calls)))
    file = steps.peak(kept)
    found = [(file, kept)]
    listed = beam_search_order(steps)
    peak = steps.peak(listed)
    if peak.apart <= file.apart and peak.shared <= file.shared:
        found.append((peak, listed))
    searched = _searched(steps, min(found)[0], states_max)
    if searched is not None:
        found.append((steps.peak(searched), searched))
    return min(found, key=lambda one: one[0])[1]


def _searched(steps: ScheduleGraph, known: PeakBytes, states_max: int) -> tuple[int, ...] | None:
    """The least peak apart, of those the least shared; None where nothing beats `known`."""
    best, left = min_peak_order(steps, PeakBytes(known.apart - 1, known.shared), 0, states_max)
    if best is not None:
        known = steps.peak(best)
    again, _ = min_peak_order(steps, PeakBytes(known.apart, known.shared - 1), 1, left)
    return again or best


def beam_search_order(steps: ScheduleGraph, width: int = BEAM_WIDTH) -> tuple[int, ...]:
    """One call after the other, with the `width` best beginnings of each length kept."""
    beginnings: dict[int, tuple[ScheduleState, tuple[int, ...]]] = {0: (steps.start(), ())}
    for _ in steps.calls:
        longer: dict[int, tuple[ScheduleState, tuple[int, ...]]] = {}
        for state, order in beginnings.values():
            for call in steps.ready(state):
                move = steps.after(state, call)
                known = longer.get(move.done)
                if known is None or move.peak < known[0].peak:
                    longer[move.done] = move, (*order, call)
        ranked = sorted(longer.values(), key=lambda one: _rank(one[0]))
        beginnings = {state.done: (state, order) for state, order in ranked[:width]}
    ((_, order),) = beginnings.values()
    return order


def _rank(state: ScheduleState) -> tuple[PeakBytes, int, int]:
    return state.peak, state.live_bytes, state.done


def build_schedule_graph(module: IRModule, entry: Function, ops: OpTable) -> ScheduleGraph:
    """What each call of `entry` reads and makes, in memory that a plan has to find."""
    return _ScheduleGraphBuilder(module, entry, ops).steps()


class _ScheduleGraphBuilder:
    """Numbers the tensors that need memory; a view is the tensor it looks at."""

    def __init__(self, module: IRModule, entry: Function, ops: OpTable) -> None:
        self.entry = entry
        self.ops = ops
        self.io = module.io
        self.results = {value.name for value in entry.results}
        self.own = {value.name for value in entry.sinks}
        self.state = {state.value.name for state in entry.state}
        self.kept = self.own | self.state
        if module.io.preserve_input:
            self.kept |= {value.name for value in entry.params}
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
            tuple(read), reads, tuple(self._makers(call) for call in self.entry.body)
        )

    def _call(self, index: int, call: Call) -> tuple[int, ...]:
        """The tensors that the call reads; those that it makes get their numbers."""
        for value in call.outputs:
            self.maker[value.name] = index
        used = dict.fromkeys(v.name for v in call.variables)
        reads = tuple(dict.fromkeys(self.number[name] for name in used))
        if self._is_window(call):
            self.number[call.outputs[0].name] = reads[0]
            return ()
        for value in call.outputs:
            self._add(value, index)
        return reads

    def _is_window(self, call: Call) -> bool:
        """Whether the call is a view that takes no memory: lowering copies the others."""
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
        self.tensors.append(ScheduledTensor(size_bytes, maker, 0, value.name in self.kept))

    def _makers(self, call: Call) -> int:
        """The calls that must be done before, as a mask."""
        mask = 0
        for value in call.inputs:
            if value is not None and value.name in self.maker:
                mask |= 1 << self.maker[value.name]
        return mask
