"""Calls that read and make tensors, and the order of them whose worst step takes fewest bytes.

In: `ScheduleGraph`, made from a graph or by hand. Out: peaks of given orders, and the exact best
order by a
search over sets of calls already done. The bytes alive after such a set do not depend on the order
in which it was done, so each set is expanded once, the least peak first. Sets are masks: bit i is
call i. Deterministic: ties go to the set with more calls done, then to calls earlier in the file.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

STATES_MAX = 50_000
"""About three seconds. Irregular graphs of more than about fifty calls may need more sets."""


class PeakBytes(NamedTuple):
    """The most bytes of a step: inputs and outputs apart, or sharing what may be shared."""

    apart: int
    shared: int


@dataclass(frozen=True, slots=True)
class ScheduledTensor:
    """`maker` is the call that makes it, -1 for an input; `kept` ones stay to the end."""

    size_bytes: int
    maker: int
    readers: int = 0
    kept: bool = False


class ScheduleState(NamedTuple):
    """After the calls `done`: `ready` are the calls that may follow, `last` was the latest."""

    done: int
    ready: int
    live_bytes: int
    peak: PeakBytes
    last: int


@dataclass(frozen=True, slots=True)
class ScheduleGraph:
    """`calls[i]` are the tensors that call i reads, `before[i]` the calls that it needs done."""

    tensors: tuple[ScheduledTensor, ...]
    calls: tuple[tuple[int, ...], ...]
    before: tuple[int, ...]
    _made: list[list[ScheduledTensor]] = field(init=False, repr=False, compare=False)
    _next: list[list[int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        made: list[list[ScheduledTensor]] = [[] for _ in self.calls]
        following: list[list[int]] = [[] for _ in self.calls]
        for tensor in self.tensors:
            if tensor.maker >= 0:
                made[tensor.maker].append(tensor)
        for call, mask in enumerate(self.before):
            for needed in _bits(mask):
                following[needed].append(call)
        object.__setattr__(self, "_made", made)
        object.__setattr__(self, "_next", following)

    def start(self) -> ScheduleState:
        """Nothing is done; the inputs are there."""
        ready = sum(1 << call for call, mask in enumerate(self.before) if not mask)
        live = sum(t.size_bytes for t in self.tensors if t.maker < 0 and (t.readers or t.kept))
        return ScheduleState(0, ready, live, PeakBytes(live, live), -1)

    def ready(self, state: ScheduleState) -> Iterator[int]:
        """The calls that may follow, in the file's order."""
        return _bits(state.ready)

    def after(self, state: ScheduleState, call: int) -> ScheduleState:
        """`state` and then `call`."""
        done = state.done | 1 << call
        dying = 0
        for index in self.calls[call]:
            tensor = self.tensors[index]
            if not tensor.kept and not tensor.readers & ~done:
                dying += tensor.size_bytes
        made = left = 0
        for tensor in self._made[call]:
            made += tensor.size_bytes
            if tensor.readers or tensor.kept:
                left += tensor.size_bytes
        ready = state.ready & ~(1 << call)
        for follower in self._next[call]:
            if not self.before[follower] & ~done:
                ready |= 1 << follower
        apart = max(state.peak.apart, state.live_bytes + made)
        shared = max(state.peak.shared, state.live_bytes - dying + max(dying, made))
        return ScheduleState(
            done, ready, state.live_bytes - dying + left, PeakBytes(apart, shared), call
        )

    def peak(self, order: Sequence[int]) -> PeakBytes:
        """The peaks of a whole order."""
        state = self.start()
        for call in order:
            state = self.after(state, call)
        return state.peak


def min_peak_order(
    steps: ScheduleGraph, limits: PeakBytes, figure: int, states_max: int
) -> tuple[tuple[int, ...] | None, int]:
    """The order with the least of that `figure` of the peak that keeps within both limits.

    None if there is none, or none was found among `states_max` sets; and how many are left over.
    """
    start = steps.start()
    goal = (1 << len(steps.calls)) - 1
    best: dict[int, tuple[int, ScheduleState, int]] = {0: (start.peak[figure], start, 0)}
    # Ordered by peak, then the most done, then the earliest calls: few sets with equal peaks.
    heap = [(start.peak[figure], 0, 0)]
    settled: set[int] = set()
    while heap and len(settled) < states_max:
        _, _, done = heapq.heappop(heap)
        if done in settled:
            continue
        settled.add(done)
        if done == goal:
            return _order_to(best, goal), states_max - len(settled)
        state = best[done][1]
        for move in _moves(steps, state, figure, limits):
            found = best.get(move.done)
            if found is None or move.peak[figure] < found[0]:
                best[move.done] = (move.peak[figure], move, done)
                heapq.heappush(heap, (move.peak[figure], -move.done.bit_count(), move.done))
    return None, states_max - len(settled)


def _moves(
    steps: ScheduleGraph, state: ScheduleState, figure: int, limits: PeakBytes
) -> list[ScheduleState]:
    """What may follow within the limits; only the first that costs nothing, if one does.

    A call that raises no peak and leaves no more alive can come at once in any best order.
    """
    moves: list[ScheduleState] = []
    for call in steps.ready(state):
        move = steps.after(state, call)
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
        _, state, before = best[done]
        order.append(state.last)
        done = before
    return tuple(reversed(order))


def _bits(mask: int) -> Iterator[int]:
    """The numbers of the bits that are set, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
