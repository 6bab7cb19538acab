"""How the interpreter runs loops: one step after the other, or all iterations at once as lanes.

In: closures for start, extent and body. Out: closures that run the loop on a frame. A loop that
would be parallel but for scratch memory which all iterations share (as kernels have it after
planning) is tried with a private copy of that memory in each lane: if no lane reads what it did not
write itself, the outcome is that of the serial loop; else everything is put back and it runs
serially.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import DType
from firmwright.ir.tir.interp_exprs import Eval, Frame, is_lanes
from firmwright.ir.tir.interp_memory import (
    Array,
    Mask,
    Pointer,
    UndefinedReadError,
    Value,
    View,
    fresh,
    span_elements,
    view_of,
)
from firmwright.ir.tir.nodes import Buffer

Run: TypeAlias = Callable[[Frame], None]

PRIVATE_BYTES_MAX = 64 << 20


def under(frame: Frame, cond: Value, body: Run) -> None:
    """Runs `body` in the lanes in which `cond` holds too."""
    if cond is True or (is_lanes(cond) and frame.mask is None and cond.all()):
        body(frame)
        return
    mask = frame.mask
    both = both_hold(mask, cond)
    if both.any():
        frame.mask = both
        body(frame)
        frame.mask = mask


def both_hold(mask: Mask, cond: Value) -> Array:
    """The lanes that are on and in which `cond` holds."""
    holds = np.atleast_1d(cond)
    return holds if mask is None else mask & holds


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop, compiled."""

    name: str
    dtype: DType
    start: Eval
    extent: Eval
    body: Run

    def serial(self, frame: Frame) -> None:
        """One step after the other; lanes may disagree about start and extent."""
        first, count = self.start(frame), self.extent(frame)
        if not is_lanes(count) and not is_lanes(first):
            variables, name, body = frame.variables, self.name, self.body
            for value in range(first, first + count):
                variables[name] = value
                body(frame)
            return
        most = int(count.max()) if is_lanes(count) else count
        for step in range(most):
            frame.variables[self.name] = first + step
            under(frame, step < count, self.body)

    def in_lanes(self, lanes_max: int, own_bytes: int, private: tuple[Buffer, ...] = ()) -> Run:
        """All iterations at once, in chunks; `private` buffers get a copy for each lane.

        `own_bytes` is what one iteration allocates.
        """
        copies = sum(buffer.size_bytes for buffer in private)
        lane_bytes = max(own_bytes + 2 * copies, 1)

        def run(frame: Frame) -> None:
            count = self.extent(frame)
            most = int(count.max()) if is_lanes(count) else count
            room = min(lanes_max, PRIVATE_BYTES_MAX // lane_bytes) // frame.lanes
            if most < 2 or room < 2:
                self.serial(frame)
                return
            first, mask, shape, lanes = self.start(frame), frame.mask, frame.shape, frame.lanes
            try:
                for low in range(0, most, room):
                    steps = np.arange(low, min(low + room, most), dtype=self.dtype.np)
                    steps = steps.reshape((len(steps),) + (1,) * len(shape))
                    frame.variables[self.name] = steps + first
                    frame.shape, frame.lanes = (len(steps), *shape), lanes * len(steps)
                    on = steps < count if is_lanes(count) else True
                    _with_copies(frame, private, lambda: under(frame, on, self.body))  # noqa: B023 - called at once
            finally:
                frame.mask, frame.shape, frame.lanes = mask, shape, lanes

        return run

    def speculative(self, lanes_max: int, own_bytes: int, private: tuple[Buffer, ...]) -> Run:
        """As lanes with copies of `private`; serially once that has turned out to be wrong."""
        lanes = self.in_lanes(lanes_max, own_bytes, private)
        refuted = False

        def run(frame: Frame) -> None:
            nonlocal refuted
            if refuted or frame.shape:
                self.serial(frame)
                return
            storages = {id(view.storage): view.storage for view in frame.views.values()}
            saved = [(s, s.copy()) for s in storages.values() if s.flags.writeable]
            try:
                lanes(frame)
            except UndefinedReadError:
                refuted = True
                for storage, before in saved:
                    storage[:] = before
                self.serial(frame)

        return run


def _with_copies(frame: Frame, private: tuple[Buffer, ...], body: Callable[[], None]) -> None:
    """Runs `body` with lane-private copies; then the shared memory is as the last lane left it."""
    if not private:
        body()
        return
    views = dict(frame.views)
    copies = [(_bytes_of(views[buffer.name]), _copied(frame, views, buffer)) for buffer in private]
    try:
        body()
    finally:
        frame.views = views
    for shared, copy in copies:
        _copy_back(shared, copy, frame.lanes)


def _bytes_of(view: View) -> Array:
    start = int(view.base_bytes)
    return view.storage[start : start + span_elements(view.buffer) * view.scale]


def _copied(frame: Frame, views: dict[str, View], buffer: Buffer) -> Pointer:
    """Gives every view of `buffer`'s memory a copy of it for each lane."""
    shared = views[buffer.name]
    plain = fresh(buffer, frame.lanes, frame.shape)
    copy = Pointer(
        plain.storage, plain.base, plain.extent_bytes, True, np.zeros_like(plain.storage)
    )
    start, end = int(shared.base_bytes), int(shared.base_bytes) + plain.extent_bytes
    for name, view in views.items():
        # Views left over from lanes that have ended have many bases; nothing reads them again.
        if view.storage is not shared.storage or is_lanes(view.base):
            continue
        if start <= view.base_bytes < end:
            base = copy.base + (view.base_bytes - start)
            pointer = Pointer(copy.storage, base, 0, view.writable, copy.shadow)
            frame.views[name] = view_of(view.buffer, pointer)
    return copy


def _copy_back(shared: Array, copy: Pointer, lanes: int) -> None:
    """Each byte from the last lane that wrote it."""
    assert copy.shadow is not None
    written = copy.shadow.reshape(lanes, -1)[:, : len(shared)]
    values = copy.storage.reshape(lanes, -1)[:, : len(shared)]
    last = lanes - 1 - np.argmax(written[::-1], axis=0)
    touched = written.any(axis=0)
    columns = np.arange(len(shared))
    shared[touched] = values[last, columns][touched]
