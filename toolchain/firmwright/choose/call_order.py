"""Pass `reorder-calls`: reorders a graph's calls if that reduces the peak memory.

Two peaks are computed: with disjoint inputs and outputs, and with outputs over inputs
that are no longer needed. A new order is accepted only if neither peak rises and one
falls. The result depends only on the graph, not on names or hashes.

The exact search explores sets of completed calls (bit masks). Ties go to the set with
more calls, then to earlier calls.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from firmwright.choose import thresholds
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.module import IRModule
from firmwright.ops.opdef import OpTable

_MOVES_OF_A_STATE = 8
"""Number of ready calls whose moves take the time of one state."""


class PeakBytes(NamedTuple):
    """Peak bytes: `apart` with disjoint inputs and outputs, `shared` with overlap."""

    apart: int
    shared: int


@dataclass(frozen=True, slots=True)
class ScheduledTensor:
    """A tensor, the call that defines it (-1 for an input), the mask of its readers."""

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
    """The tensors, and for each call those it reads and the mask of its predecessors.

    `_made` has the tensors that each call defines, `_next` the calls that need it.
    """

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
        """Return the state before all calls."""
        ready = 0
        for call, mask in enumerate(self.before):
            if not mask:
                ready |= 1 << call
        live_bytes = 0
        for tensor in self.tensors:
            is_needed = tensor.readers or tensor.lives_to_end
            if tensor.maker < 0 and is_needed:
                live_bytes += tensor.size_bytes
        peak = PeakBytes(live_bytes, live_bytes)
        return ScheduleState(0, ready, live_bytes, peak, last=-1)

    def after(self, state: ScheduleState, call: int) -> ScheduleState:
        """Return the state after `call` runs in `state`.

        While the call runs, its inputs and outputs are live. With overlap, the outputs
        take the place of the inputs that no later call reads:

            apart     | live before, without dying | dying | defined |
            shared    | live before, without dying | max(dying, defined) |
            after     | live before, without dying | remaining |

        The remaining tensors are defined by the call and still needed.
        """
        done = state.done | 1 << call
        dying = 0
        for index in self.calls[call]:
            tensor = self.tensors[index]
            if not tensor.lives_to_end and not tensor.readers & ~done:
                dying += tensor.size_bytes
        defined_bytes = 0
        remaining_bytes = 0
        for tensor in self._made[call]:
            defined_bytes += tensor.size_bytes
            if tensor.readers or tensor.lives_to_end:
                remaining_bytes += tensor.size_bytes
        ready = state.ready & ~(1 << call)
        for follower in self._next[call]:
            if not self.before[follower] & ~done:
                ready |= 1 << follower
        surviving_bytes = state.live_bytes - dying
        # While the call runs, what dies with it is still live, beside what it defines.
        apart = max(state.peak.apart, state.live_bytes + defined_bytes)
        shared = max(state.peak.shared, surviving_bytes + max(dying, defined_bytes))
        live_bytes = surviving_bytes + remaining_bytes
        return ScheduleState(done, ready, live_bytes, PeakBytes(apart, shared), call)

    def peak(self, order: Sequence[int]) -> PeakBytes:
        """Return the peaks of a complete order."""
        state = self.start()
        for call in order:
            state = self.after(state, call)
        return state.peak


class _BestState(NamedTuple):
    """The state with the lowest peak for a set of completed calls, the set before."""

    peak: int
    state: ScheduleState
    before: int


def min_peak_order(
    graph: ScheduleGraph, limits: PeakBytes, figure: int, states_max: int
) -> tuple[tuple[int, ...] | None, int]:
    """Return the order within both limits that has the lowest `peak[figure]`, or None.

    The second result is the unused part of `states_max`.
    """
    # Dijkstra's search over sets of completed calls: the length of a path is its
    # highest peak, and of all orders of a set only the one with the lowest peak can be
    # part of the best order.
    start = graph.start()
    goal = (1 << len(graph.calls)) - 1
    best: dict[int, _BestState] = {0: _BestState(start.peak[figure], start, 0)}
    # Ordered by peak, most calls done and earliest calls, to expand few equal sets.
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
        state = best[done].state
        # A state with many ready calls takes the time of several.
        spent += graph.mask_cost * (1 + state.ready.bit_count() // _MOVES_OF_A_STATE)
        for move in _moves(graph, state, figure, limits):
            peak = move.peak[figure]
            best_known = best.get(move.done)
            if best_known is None or peak < best_known.peak:
                best[move.done] = _BestState(peak, move, done)
                heapq.heappush(heap, (peak, -move.done.bit_count(), move.done))
    return None, states_max - spent


def _moves(
    graph: ScheduleGraph, state: ScheduleState, figure: int, limits: PeakBytes
) -> list[ScheduleState]:
    """Return permitted next states, or just one that raises neither peak nor bytes.

    Some best order continues with that state.
    """
    moves: list[ScheduleState] = []
    for call in _bits(state.ready):
        move = graph.after(state, call)
        if move.peak.apart > limits.apart or move.peak.shared > limits.shared:
            continue
        # Any order can be changed to run this call now, without loss: all calls before
        # its old place then see as few live bytes or fewer. Other moves need no trial.
        raises_peak = move.peak[figure] != state.peak[figure]
        if move.live_bytes <= state.live_bytes and not raises_peak:
            return [move]
        moves.append(move)
    return moves


def _order_to(best: Mapping[int, _BestState], goal: int) -> tuple[int, ...]:
    """Return the calls in the order that led to the set `goal`."""
    order: list[int] = []
    done = goal
    while done:
        order.append(best[done].state.last)
        done = best[done].before
    return tuple(reversed(order))


def _bits(mask: int) -> Iterator[int]:
    """Yield the positions of the set bits, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


# ---- the pass ------------------------------------------------------------------------


def reorder_calls(module: IRModule, ops: OpTable) -> IRModule:
    """Return the module with the calls of its entry in the best order found."""
    entry = module.entry
    if not isinstance(entry, Function):
        return module
    order = find_min_peak_order(build_schedule_graph(module, entry, ops))
    if order == tuple(range(len(entry.body))):
        return module
    body = tuple(entry.body[index] for index in order)
    return module.with_function(replace(entry, body=body))


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
    _, best_order = min(orders, key=lambda item: item[0])
    return best_order


def _search_exactly(
    graph: ScheduleGraph, peak: PeakBytes, states_max: int
) -> tuple[int, ...] | None:
    """Minimize the peak without overlap, then that with it; None if neither falls."""
    # A limit below the present peak: the search finds an improvement or nothing.
    limits = PeakBytes(peak.apart - 1, peak.shared)
    best, left = min_peak_order(graph, limits, 0, states_max)
    if best is not None:
        peak = graph.peak(best)
    limits = PeakBytes(peak.apart, peak.shared - 1)
    again, _ = min_peak_order(graph, limits, 1, left)
    return again or best


def beam_search_order(
    graph: ScheduleGraph, width: int = thresholds.BEAM_WIDTH
) -> tuple[int, ...]:
    """Build an order call by call, keeping the `width` best partial orders of a length.

    After BEAM_MOVES_MAX moves, only the best is kept; after ten times as many, the
    remaining calls keep their order.
    """
    moves = 0
    beam = [_PartialOrder(graph.start(), ())]
    for _ in graph.calls:
        longer: dict[int, _PartialOrder] = {}
        for partial in beam:
            state = partial.state
            moves += graph.mask_cost * state.ready.bit_count()
            tried_max = 1 if moves > 10 * thresholds.BEAM_MOVES_MAX else None
            for call in islice(_bits(state.ready), tried_max):
                move = graph.after(state, call)
                # Orders of the same calls have equal continuations: the best is kept.
                known = longer.get(move.done)
                if known is None or move.peak < known.state.peak:
                    longer[move.done] = _PartialOrder(move, (*partial.calls, call))
        kept = width if moves < thresholds.BEAM_MOVES_MAX else 1
        beam = sorted(longer.values(), key=_PartialOrder.rank)[:kept]
    return beam[0].calls


class _PartialOrder(NamedTuple):
    """The first calls of an order, and the state after them."""

    state: ScheduleState
    calls: tuple[int, ...]

    def rank(self) -> tuple[PeakBytes, int, int]:
        return self.state.peak, self.state.live_bytes, self.state.done


# ---- the graph of a function ---------------------------------------------------------


def build_schedule_graph(
    module: IRModule, entry: Function, ops: OpTable
) -> ScheduleGraph:
    return _ScheduleGraphBuilder(module, entry, ops).build()


class _ScheduleGraphBuilder:
    """Numbers the tensors of a function; a view has the same number as its source."""

    def __init__(self, module: IRModule, entry: Function, ops: OpTable) -> None:
        self.entry = entry
        self.ops = ops
        self.io = module.io
        self.results = {value.name for value in entry.results}
        # Results and next values of states: these need memory of their own.
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
        reads: list[tuple[int, ...]] = []
        for index, call in enumerate(self.entry.body):
            reads.append(self._add_call(index, call))
        readers = [0] * len(self.tensors)
        for index, numbers in enumerate(reads):
            for number in numbers:
                # A reader of a view reads its source: both have one number.
                readers[number] |= 1 << index
        tensors_with_readers: list[ScheduledTensor] = []
        for tensor, mask in zip(self.tensors, readers, strict=True):
            tensors_with_readers.append(replace(tensor, readers=mask))
        before = tuple(map(self._predecessors, self.entry.body))
        return ScheduleGraph(tuple(tensors_with_readers), tuple(reads), before)

    def _predecessors(self, call: Call) -> int:
        """Return the mask of the calls that define the inputs of a call."""
        mask = 0
        for value in call.inputs:
            if value is not None and value.name in self.maker:
                mask |= 1 << self.maker[value.name]
        return mask

    def _add_call(self, index: int, call: Call) -> tuple[int, ...]:
        """Add the tensors that a call defines; return those read, none for a view."""
        for value in call.outputs:
            self.maker[value.name] = index
        numbers = [self.number[value.name] for value in call.variables]
        if self._is_view(call):
            self.number[call.outputs[0].name] = numbers[0]
            return ()
        for value in call.outputs:
            self._add(value, index)
        return tuple(dict.fromkeys(numbers))

    def _is_view(self, call: Call) -> bool:
        """Return whether a call's output is its input, neither constant nor result."""
        opdef = self.ops.get(call.op)
        if opdef is None or not opdef.is_view or not call.inputs:
            return False
        source = call.inputs[0]
        if source is None or source.constant is not None:
            return False
        return call.outputs[0].name not in self.own

    def _add(self, value: Value, maker: int) -> None:
        """Add a tensor, without bytes if the caller stores it."""
        if maker < 0:
            is_stored = self.io.inputs_in_pools or value.name in self.state
        else:
            is_stored = self.io.outputs_in_pools or value.name not in self.results
        self.number[value.name] = len(self.tensors)
        tensor = ScheduledTensor(
            size_bytes=value.type.size_bytes if is_stored else 0,
            maker=maker,
            lives_to_end=value.name in self.lives_to_end,
        )
        self.tensors.append(tensor)
