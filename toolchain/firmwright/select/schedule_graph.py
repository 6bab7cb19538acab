"""Calls and tensors as a graph, and the order of calls with the lowest peak memory.

The search is exact, over sets of completed calls (bit masks): live bytes after a set do not depend
on the order in which it was completed. Ties go to the set with more calls, then to earlier calls.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class PeakBytes(NamedTuple):
    """Peak bytes with inputs and outputs disjoint, and with overlap where permitted."""

    apart: int
    shared: int


@dataclass(frozen=True, slots=True)
class ScheduledTensor:
    """A tensor; `maker` is the call that defines it, or -1 for an input."""

    size_bytes: int
    maker: int
    readers: int = 0
    lives_to_end: bool = False


class ScheduleState(NamedTuple):
    """The state after the calls in `done`, of which `last` was the latest.

    The calls in the mask `ready` may follow.
    """

    done: int
    ready: int
    live_bytes: int
    peak: PeakBytes
    last: int


@dataclass(frozen=True, slots=True)
class ScheduleGraph:
    """The tensors that each call reads, and the calls (`before`) that must precede it."""

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

    def start(self) -> ScheduleState:
        ready = sum(1 << call for call, mask in enumerate(self.before) if not mask)
        live = sum(
            t.size_bytes for t in self.tensors if t.maker < 0 and (t.readers or t.lives_to_end)
        )
        return ScheduleState(0, ready, live, PeakBytes(live, live), -1)

    def ready(self, state: ScheduleState) -> Iterator[int]:
        return _bits(state.ready)

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
    """Return the order with the lowest peak by `figure` within both limits, or None.

    The second result is the unused part of `states_max`.
    """
    start = graph.start()
    goal = (1 << len(graph.calls)) - 1
    best: dict[int, tuple[int, ScheduleState, int]] = {0: (start.peak[figure], start, 0)}
    # Ordered by peak, then most calls done, then earliest calls, to expand few equal sets.
    heap = [(start.peak[figure], 0, 0)]
    expanded: set[int] = set()
    while heap and len(expanded) < states_max:
        _, _, done = heapq.heappop(heap)
        if done in expanded:
            continue
        expanded.add(done)
        if done == goal:
            return _order_to(best, goal), states_max - len(expanded)
        state = best[done][1]
        for move in _moves(graph, state, figure, limits):
            best_known = best.get(move.done)
            if best_known is None or move.peak[figure] < best_known[0]:
                best[move.done] = (move.peak[figure], move, done)
                heapq.heappush(heap, (move.peak[figure], -move.done.bit_count(), move.done))
    return None, states_max - len(expanded)


def _moves(
    graph: ScheduleGraph, state: ScheduleState, figure: int, limits: PeakBytes
) -> list[ScheduleState]:
    """Return the permitted next states, or only the first that raises neither peak nor live bytes.

    Such a call is part of some best order.
    """
    moves: list[ScheduleState] = []
    for call in graph.ready(state):
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
        _, state, before = best[done]
        order.append(state.last)
        done = before
    return tuple(reversed(order))


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
