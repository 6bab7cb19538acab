"""Pass `reorder-calls`: reorder the calls of a graph if that reduces the peak of live bytes.

Two peaks are computed: with disjoint inputs and outputs, and with outputs over inputs that are no
longer needed. A new order is accepted only if neither peak rises and one falls. The result depends
only on the graph, not on names or hashes.

The exact search explores sets of completed calls (bit masks). Ties go to the set with more calls,
then to earlier calls.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from firmwright.choose import thresholds
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.module import IRModule
from firmwright.ops.opdef import OpTable

_MOVES_OF_A_STATE = 8


class PeakBytes(NamedTuple):
    """Peak bytes: `apart` with inputs and outputs disjoint, `shared` with overlap if permitted."""

    apart: int
    shared: int


@dataclass(frozen=True, slots=True)
class ScheduledTensor:
    """A tensor, the call that defines it (-1 for an input), and the mask of calls that read it."""

    size_bytes: int
    maker: int
    readers: int = 0
    lives_to_end: bool = False


class ScheduleState(NamedTuple):
    """The state after the calls in the mask `done`, the latest of which is `last`.

    The calls in the mask `ready` can run next.
    """

    done: int
    ready: int
    live_bytes: int
    peak: PeakBytes
    last: int


@dataclass(frozen=True, slots=True)
class ScheduleGraph:
    """The tensors, and for each call the tensors that it reads and the mask of its predecessors."""

    tensors: tuple[ScheduledTensor, ...]
    calls: tuple[tuple[int, ...], ...]
    before: tuple[int, ...]
    _made: list[list[ScheduledTensor]] = field(init=False, repr=False, compare=False)
    _next: list[list[int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        defined: list[list[ScheduledTensor]] = [[] for _ in self.calls]
        following: list[list[int]] = [[] for _ in self.calls]
        for tensor in self.tensors:
            if tensor.maker >= 0:
                defined[tensor.maker].append(tensor)
        for call, mask in enumerate(self.before):
            for needed in _bits(mask):
                following[needed].append(call)
        object.__setattr__(self, "_made", defined)
        object.__setattr__(self, "_next", following)

    @property
    def mask_cost(self) -> int:
        """The relative time of a move, which grows with the length of the masks."""
        return 1 + len(self.calls) // 1000

    def start(self) -> ScheduleState:
        ready = sum(1 << call for call, mask in enumerate(self.before) if not mask)
        live = sum(
            t.size_bytes for t in self.tensors if t.maker < 0 and (t.readers or t.lives_to_end)
        )
        return ScheduleState(0, ready, live, PeakBytes(live, live), -1)

    def after(self, state: ScheduleState, call: int) -> ScheduleState:
        done = state.done | 1 << call
        dying = 0
        for index in self.calls[call]:
            tensor = self.tensors[index]
            if not tensor.lives_to_end and not tensor.readers & ~done:
                dying += tensor.size_bytes
        defined_bytes = remaining_bytes = 0
        for tensor in self._made[call]:
            defined_bytes += tensor.size_bytes
            if tensor.readers or tensor.lives_to_end:
                remaining_bytes += tensor.size_bytes
        ready = state.ready & ~(1 << call)
        for follower in self._next[call]:
            if not self.before[follower] & ~done:
                ready |= 1 << follower
        apart = max(state.peak.apart, state.live_bytes + defined_bytes)
        shared = max(state.peak.shared, state.live_bytes - dying + max(dying, defined_bytes))
        return ScheduleState(
            done, ready, state.live_bytes - dying + remaining_bytes, PeakBytes(apart, shared), call
        )

    def peak(self, order: Sequence[int]) -> PeakBytes:
        state = self.start()
        for call in order:
            state = self.after(state, call)
        return state.peak


def min_peak_order(
    graph: ScheduleGraph, limits: PeakBytes, figure: int, states_max: int
) -> tuple[tuple[int, ...] | None, int]:
    """Return the order within both limits that has the lowest `peak[figure]`, or None.

    The second result is the unused part of `states_max`.
    """
    start = graph.start()
    goal = (1 << len(graph.calls)) - 1
    best: dict[int, tuple[int, ScheduleState, int]] = {0: (start.peak[figure], start, 0)}
    # Ordered by peak, then most calls done, then earliest calls, to expand few equal sets.
    heap = [(start.peak[figure], 0, 0)]
    expanded: set[int] = set()
    spent = 0
    while heap and spent < states_max:
        _, _, done = heapq.heappop(heap)
        if done in expanded:
            continue
        expanded.add(done)
        if done == goal:
            return _order_to(best, goal), states_max - spent
        state = best[done][1]
        # A state with many ready calls takes the time of several.
        spent += graph.mask_cost * (1 + state.ready.bit_count() // _MOVES_OF_A_STATE)
        for move in _moves(graph, state, figure, limits):
            best_known = best.get(move.done)
            if best_known is None or move.peak[figure] < best_known[0]:
                best[move.done] = (move.peak[figure], move, done)
                heapq.heappush(heap, (move.peak[figure], -move.done.bit_count(), move.done))
    return None, states_max - spent


def _moves(
    graph: ScheduleGraph, state: ScheduleState, figure: int, limits: PeakBytes
) -> list[ScheduleState]:
    """Return the permitted next states, or only the first that raises neither peak nor live bytes.

    Some best order continues with that state.
    """
    moves: list[ScheduleState] = []
    for call in _bits(state.ready):
        move = graph.after(state, call)
        if move.peak.apart > limits.apart or move.peak.shared > limits.shared:
            continue
        if move.live_bytes <= state.live_bytes and move.peak[figure] == state.peak[figure]:
            return [move]
        moves.append(move)
    return moves


def _order_to(best: dict[int, tuple[int, ScheduleState, int]], goal: int) -> tuple[int, ...]:
    order: list[int] = []
    done = goal
    while done:
        _, state, done = best[done]
        order.append(state.last)
    return tuple(reversed(order))


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


# ---- the pass ----------------------------------------------------------------------------------


def reorder_calls(module: IRModule, ops: OpTable) -> IRModule:
    """Return the module with the calls of its entry in the best order found."""
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
    """Return the best of the original order and those of beam and exact search."""
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
    """Minimize the peak without overlap, then that with overlap; return None if neither falls."""
    best, left = min_peak_order(graph, PeakBytes(peak.apart - 1, peak.shared), 0, states_max)
    if best is not None:
        peak = graph.peak(best)
    again, _ = min_peak_order(graph, PeakBytes(peak.apart, peak.shared - 1), 1, left)
    return again or best


def beam_search_order(graph: ScheduleGraph, width: int = thresholds.BEAM_WIDTH) -> tuple[int, ...]:
    """Build an order call by call, keeping the `width` best partial orders of each length.

    After BEAM_MOVES_MAX moves, only the best is kept; after ten times as many, the remaining calls
    keep their order.
    """
    moves, moves_max = 0, 10 * thresholds.BEAM_MOVES_MAX
    beginnings: dict[int, tuple[ScheduleState, tuple[int, ...]]] = {0: (graph.start(), ())}
    for _ in graph.calls:
        longer: dict[int, tuple[ScheduleState, tuple[int, ...]]] = {}
        for state, order in beginnings.values():
            moves += graph.mask_cost * state.ready.bit_count()
            for call in islice(_bits(state.ready), 1 if moves > moves_max else None):
                move = graph.after(state, call)
                previous = longer.get(move.done)
                if previous is None or move.peak < previous[0].peak:
                    longer[move.done] = move, (*order, call)

        def rank(item: tuple[ScheduleState, tuple[int, ...]]) -> tuple[PeakBytes, int, int]:
            return item[0].peak, item[0].live_bytes, item[0].done

        kept = width if moves < thresholds.BEAM_MOVES_MAX else 1
        beginnings = {item[0].done: item for item in sorted(longer.values(), key=rank)[:kept]}
    ((_, order),) = beginnings.values()
    return order


# ---- the graph of a function -------------------------------------------------------------------


def build_schedule_graph(module: IRModule, entry: Function, ops: OpTable) -> ScheduleGraph:
    return _ScheduleGraphBuilder(module, entry, ops).build()


class _ScheduleGraphBuilder:
    """Numbers the tensors of a function; a view has the same number as its source."""

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

    def build(self) -> ScheduleGraph:
        for value in self.entry.sources:
            self._add(value, -1)
        reads = tuple(self._call(index, call) for index, call in enumerate(self.entry.body))
        readers = [0] * len(self.tensors)
        for index, tensors in enumerate(reads):
            for tensor in tensors:
                readers[tensor] |= 1 << index
        read = (replace(t, readers=r) for t, r in zip(self.tensors, readers, strict=True))
        before = (
            {self.maker[v.name] for v in call.inputs if v is not None and v.name in self.maker}
            for call in self.entry.body
        )
        masks = tuple(sum(1 << maker for maker in makers) for makers in before)
        return ScheduleGraph(tuple(read), reads, masks)

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
