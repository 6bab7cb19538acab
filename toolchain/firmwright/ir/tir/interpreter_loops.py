"""Loop execution of the interpreter: sequential, or all iterations at once as lanes.

A loop that shares only scratch memory between iterations is tried with a private copy per lane. If
a lane reads bytes that it did not write, memory is restored and the loop runs serially.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import DType
from firmwright.ir import tir
from firmwright.ir.tir.interpreter_exprs import ActivationFrame, Eval, is_lane_array
from firmwright.ir.tir.interpreter_memory import (
    Array,
    Mask,
    Pointer,
    UndefinedReadError,
    Value,
    View,
    allocate_undefined,
    make_view,
)

Run: TypeAlias = Callable[[ActivationFrame], None]

PRIVATE_BYTES_MAX = 64 << 20


def run_masked(frame: ActivationFrame, cond: Value, body: Run) -> None:
    if cond is True or (is_lane_array(cond) and frame.mask is None and cond.all()):
        body(frame)
        return
    mask = frame.mask
    both = combine_masks(mask, cond)
    if both.any():
        frame.mask = both
        body(frame)
        frame.mask = mask


def combine_masks(mask: Mask, cond: Value) -> Array:
    holds = np.atleast_1d(cond)
    return holds if mask is None else mask & holds


@dataclass(frozen=True, slots=True)
class CompiledLoop:
    """A loop with its range and body compiled to closures."""

    name: str
    dtype: DType
    start: Eval
    extent: Eval
    body: Run

    def run_serially(self, frame: ActivationFrame) -> None:
        """Run sequentially; lanes may have different starts and extents."""
        first, count = self.start(frame), self.extent(frame)
        if not is_lane_array(count) and not is_lane_array(first):
            variables, name, body = frame.variables, self.name, self.body
            for value in range(first, first + count):
                variables[name] = value
                body(frame)
            return
        most = int(count.max()) if is_lane_array(count) else count
        for step in range(most):
            frame.variables[self.name] = first + step
            run_masked(frame, step < count, self.body)

    def run_in_lanes(
        self, lanes_max: int, own_bytes: int, private: tuple[tir.Buffer, ...] = ()
    ) -> Run:
        """Run all iterations at once, in chunks, with a copy of the `private` buffers per lane.

        `own_bytes` is the memory that one iteration allocates.
        """
        copies = sum(buffer.size_bytes for buffer in private)
        lane_bytes = max(own_bytes + 2 * copies, 1)

        def run(frame: ActivationFrame) -> None:
            count = self.extent(frame)
            most = int(count.max()) if is_lane_array(count) else count
            room = min(lanes_max, PRIVATE_BYTES_MAX // lane_bytes) // frame.lanes
            if most < 2 or room < 2:
                self.run_serially(frame)
                return
            first, mask, shape, lanes = self.start(frame), frame.mask, frame.shape, frame.lanes
            try:
                for low in range(0, most, room):
                    steps = np.arange(low, min(low + room, most), dtype=self.dtype.np)
                    steps = steps.reshape((len(steps),) + (1,) * len(shape))
                    frame.variables[self.name] = steps + first
                    frame.shape, frame.lanes = (len(steps), *shape), lanes * len(steps)
                    on = steps < count if is_lane_array(count) else True
                    run_body = partial(run_masked, frame, on, self.body)
                    _run_with_private_copies(frame, private, run_body)
            finally:
                frame.mask, frame.shape, frame.lanes = mask, shape, lanes

        return run

    def run_speculatively(
        self, lanes_max: int, own_bytes: int, private: tuple[tir.Buffer, ...]
    ) -> Run:
        """Run in lanes with copies of `private`; run serially if that has failed once."""
        lanes = self.run_in_lanes(lanes_max, own_bytes, private)
        refuted = False

        def run(frame: ActivationFrame) -> None:
            nonlocal refuted
            if refuted or frame.shape:
                self.run_serially(frame)
                return
            storages = {id(view.storage): view.storage for view in frame.views.values()}
            saved = [(s, s.copy()) for s in storages.values() if s.flags.writeable]
            try:
                lanes(frame)
            except UndefinedReadError:
                refuted = True
                for storage, before in saved:
                    storage[:] = before
                self.run_serially(frame)

        return run


def _run_with_private_copies(
    frame: ActivationFrame, private: tuple[tir.Buffer, ...], body: Callable[[], None]
) -> None:
    if not private:
        body()
        return
    views = dict(frame.views)
    copies = [(views[buffer.name], _privatize(frame, views, buffer)) for buffer in private]
    try:
        body()
    finally:
        frame.views = views
    for view, copy in copies:
        start = int(view.base_bytes)
        shared = view.storage[start : start + view.buffer.span_elements * view.scale]
        _copy_back(shared, copy, frame.lanes)


def _privatize(frame: ActivationFrame, views: dict[str, View], buffer: tir.Buffer) -> Pointer:
    shared = views[buffer.name]
    plain = allocate_undefined(buffer, frame.lanes, frame.shape)
    copy = Pointer(
        plain.storage, plain.base, plain.extent_bytes, True, np.zeros_like(plain.storage)
    )
    start, end = int(shared.base_bytes), int(shared.base_bytes) + plain.extent_bytes
    for name, view in views.items():
        # Views left over from lanes that have ended have many bases; nothing reads them again.
        if view.storage is not shared.storage or is_lane_array(view.base):
            continue
        if start <= view.base_bytes < end:
            base = copy.base + (view.base_bytes - start)
            pointer = Pointer(copy.storage, base, 0, view.writable, copy.shadow)
            frame.views[name] = make_view(view.buffer, pointer)
    return copy


def _copy_back(shared: Array, copy: Pointer, lanes: int) -> None:
    """Copy each byte from the last lane that wrote it."""
    assert copy.shadow is not None
    written = copy.shadow.reshape(lanes, -1)[:, : len(shared)]
    values = copy.storage.reshape(lanes, -1)[:, : len(shared)]
    last = lanes - 1 - np.argmax(written[::-1], axis=0)
    touched = written.any(axis=0)
    columns = np.arange(len(shared))
    shared[touched] = values[last, columns][touched]
