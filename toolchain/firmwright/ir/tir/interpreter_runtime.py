"""Run-time state of the interpreter: memory, frames and the execution of loops.

Memory consists of byte arrays with typed, strided, bounds-checked views. The base of a
view is a byte offset: one number, or one per lane for lane-private memory. Callers of
`gather` and `scatter` check bounds. A `Value` is an int, bool or `np.float32` if it is
equal in all lanes, else an array of at least one axis.

A loop runs serially, or with all iterations at once as lanes. A loop that shares only
scratch memory is tried with a private copy per lane; if a lane reads bytes that it did
not write, memory is restored and the loop runs serially.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from firmwright.base.dtypes import Array as Array
from firmwright.base.dtypes import DType
from firmwright.base.errors import InternalError
from firmwright.base.rounding import round_up
from firmwright.ir import tir

Value: TypeAlias = Any
Bytes: TypeAlias = NDArray[np.uint8]
Mask: TypeAlias = "NDArray[np.bool_] | None"

LANE_ALIGNMENT = 16
"""Alignment of private copies, which keeps every view of them aligned."""

POISON = 0xA5
"""The byte that fills undefined memory."""

PRIVATE_BYTES_MAX = 64 << 20
"""Limit of the memory for the private copies of one loop."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """The run-time value of an AccessPtr: bytes [base, base + extent) of storage.

    `shadow`, if present, has a 1 for each byte of `storage` that was written.
    """

    storage: Bytes
    base: int | Array
    extent_bytes: int
    writable: bool
    shadow: Bytes | None = None

    @property
    def address(self) -> int:
        """The absolute address, for comparing pointers that are equal in all lanes."""
        start: int = self.storage.__array_interface__["data"][0]
        return start + int(self.base)


class View:
    """A typed view of a buffer at run time."""

    __slots__ = (
        "base",
        "buffer",
        "misaligned",
        "scale",
        "shadow",
        "storage",
        "typed",
        "writable",
    )

    def __init__(self, buffer: tir.Buffer, pointer: Pointer) -> None:
        size = buffer.dtype.size_bytes
        self.buffer = buffer
        self.storage = pointer.storage
        self.writable = pointer.writable
        self.shadow = pointer.shadow
        self.scale = size
        self.misaligned = bool(np.any(np.asarray(pointer.base) % size))
        if self.misaligned:
            self.base = pointer.base
            self.typed: Array = pointer.storage
        else:
            self.base = pointer.base // size
            usable = len(pointer.storage) // size * size
            self.typed = pointer.storage[:usable].view(buffer.dtype.np)

    @property
    def base_bytes(self) -> int | Array:
        return self.base if self.misaligned else self.base * self.scale

    def _byte_places(self, position: Value) -> Array:
        """Return the places of all bytes of misaligned elements, in the last axis."""
        first = np.expand_dims(position * self.scale + self.base, -1)
        places: Array = first + np.arange(self.scale)
        return places

    def gather(self, position: Value) -> Value:
        if self.misaligned:
            where = self._byte_places(position)
            elements = self.storage.take(where).view(self.buffer.dtype.np)[..., 0]
            return elements if elements.ndim else to_scalar(elements[()])
        where = position + self.base
        if type(where) is int:
            return to_scalar(self.typed[where])
        return self.typed.take(where)

    def scatter(self, position: Value, value: Value, mask: Mask) -> None:
        where: Value
        if self.misaligned:
            where = self._byte_places(position)
            new = np.ascontiguousarray(value, dtype=self.buffer.dtype.np)
            value = np.expand_dims(new, -1).view(np.uint8)
            mask = None if mask is None else np.expand_dims(mask, -1)
        else:
            where = position + self.base
        if mask is None:
            self.typed[where] = value
            return
        shape = np.broadcast_shapes(np.shape(where), np.shape(value), mask.shape)
        active = np.broadcast_to(mask, shape)
        target = np.broadcast_to(where, shape)[active]
        self.typed[target] = np.broadcast_to(value, shape)[active]


class UndefinedReadError(Exception):
    """Internal signal that a tracked view was read before it was written."""


class TrackedView(View):
    """A view that marks written bytes in its shadow and rejects reads of others."""

    __slots__ = ("_marks", "_pattern")

    def __init__(self, buffer: tir.Buffer, pointer: Pointer) -> None:
        super().__init__(buffer, pointer)
        assert pointer.shadow is not None
        if self.misaligned:  # rare, so it is not supported
            raise UndefinedReadError
        # The marks of an element's bytes are read as one number, 0x01 in each byte.
        usable = len(pointer.shadow) // self.scale * self.scale
        self._marks: Array = pointer.shadow[:usable].view(f"u{self.scale}")
        self._pattern = int("01" * self.scale, 16)

    def gather(self, position: Value) -> Value:
        if not np.all(self._marks[position + self.base] == self._pattern):
            raise UndefinedReadError
        return super().gather(position)

    def scatter(self, position: Value, value: Value, mask: Mask) -> None:
        super().scatter(position, value, mask)
        where = position + self.base
        if mask is not None:
            shape = np.broadcast_shapes(np.shape(where), mask.shape)
            where = np.broadcast_to(where, shape)[np.broadcast_to(mask, shape)]
        self._marks[where] = self._pattern


def make_view(buffer: tir.Buffer, pointer: Pointer) -> View:
    if pointer.shadow is None:
        return View(buffer, pointer)
    return TrackedView(buffer, pointer)


def to_scalar(scalar: Any) -> Value:
    return scalar if isinstance(scalar, np.floating) else scalar.item()


def allocate_undefined(
    buffer: tir.Buffer, lanes: int, shape: tuple[int, ...]
) -> Pointer:
    """Allocate poisoned memory for `buffer`, one copy per lane in `lanes`."""
    size = round_up(buffer.size_bytes, LANE_ALIGNMENT)
    storage = np.full(lanes * size, POISON, dtype=np.uint8)
    if lanes == 1:
        return Pointer(storage, 0, buffer.size_bytes, True)
    base = (np.arange(lanes, dtype=np.int64) * size).reshape(shape)
    return Pointer(storage, base, buffer.size_bytes, True)


def make_pointer(array: Array, dtype: DType, where: str, *, writable: bool) -> Pointer:
    """Wrap the caller's array, which must be contiguous and have the right dtype."""
    if array.dtype != dtype.np:
        what = f"the argument is {array.dtype}, not {dtype.name}"
        raise InternalError(what, where=where)
    if not array.flags.c_contiguous:
        raise InternalError("the argument is not contiguous", where=where)
    if writable and not array.flags.writeable:
        raise InternalError("the argument is written but is read-only", where=where)
    return Pointer(array.reshape(-1).view(np.uint8), 0, array.nbytes, writable)


def elements_at(pointer: Pointer, dtype: DType, depth: int) -> tuple[View, Array]:
    """Return a view of `pointer` as `dtype`, and the indices of all elements.

    The first axis of the indices is the elements, followed by `depth` lane axes (at
    least one).
    """
    count = pointer.extent_bytes // dtype.size_bytes
    view = make_view(tir.Buffer("", dtype, (count,)), pointer)
    return view, np.arange(count).reshape((count,) + (1,) * max(depth, 1))


class CallFrame:
    """One activation of a function.

    `shape` lists the extents of the lanes, innermost loop first. A parallel loop adds
    an axis at the front.
    """

    __slots__ = ("lanes", "mask", "registers", "shape", "variables", "views")

    def __init__(self) -> None:
        self.variables: dict[str, Value] = {}
        self.views: dict[str, View] = {}
        self.registers: dict[str, list[Value]] = {}
        self.mask: Mask = None
        self.shape: tuple[int, ...] = ()
        self.lanes = 1


Eval: TypeAlias = Callable[[CallFrame], Value]
Run: TypeAlias = Callable[[CallFrame], None]


def is_any_active(bad: Value, mask: Mask) -> bool:
    if not isinstance(bad, np.ndarray):
        return bool(bad) and (mask is None or bool(mask.any()))
    if not bad.any():
        return False
    return mask is None or bool((bad & mask).any())


def run_masked(frame: CallFrame, cond: Value, body: Run) -> None:
    if cond is True or (
        isinstance(cond, np.ndarray) and frame.mask is None and cond.all()
    ):
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
    both: Array = holds if mask is None else mask & holds
    return both


@dataclass(frozen=True, slots=True)
class CompiledLoop:
    """A loop with its range and body compiled to closures."""

    name: str
    dtype: DType
    start: Eval
    extent: Eval
    body: Run

    def run_serially(self, frame: CallFrame) -> None:
        """Run sequentially; lanes may have different starts and extents."""
        first, count = self.start(frame), self.extent(frame)
        if not isinstance(count, np.ndarray) and not isinstance(first, np.ndarray):
            variables, name, body = frame.variables, self.name, self.body
            for value in range(first, first + count):
                variables[name] = value
                body(frame)
            return
        most = int(count.max()) if isinstance(count, np.ndarray) else count
        for step in range(most):
            frame.variables[self.name] = first + step
            run_masked(frame, step < count, self.body)

    def run_in_lanes(
        self, lanes_max: int, own_bytes: int, private: tuple[tir.Buffer, ...] = ()
    ) -> Run:
        """Return a function that runs the iterations as lanes, in chunks.

        Each lane has a copy of the `private` buffers. `own_bytes` is the memory that
        one iteration allocates.
        """
        copies = sum(buffer.size_bytes for buffer in private)
        lane_bytes = max(own_bytes + 2 * copies, 1)

        def run(frame: CallFrame) -> None:
            count = self.extent(frame)
            most = int(count.max()) if isinstance(count, np.ndarray) else count
            room = min(lanes_max, PRIVATE_BYTES_MAX // lane_bytes) // frame.lanes
            if most < 2 or room < 2:
                self.run_serially(frame)
                return
            first, mask = self.start(frame), frame.mask
            shape, lanes = frame.shape, frame.lanes
            try:
                for low in range(0, most, room):
                    steps = np.arange(low, min(low + room, most), dtype=self.dtype.np)
                    steps = steps.reshape((len(steps),) + (1,) * len(shape))
                    frame.variables[self.name] = steps + first
                    frame.shape, frame.lanes = (len(steps), *shape), lanes * len(steps)
                    on = steps < count if isinstance(count, np.ndarray) else True
                    run_body = partial(run_masked, frame, on, self.body)
                    _run_with_private_copies(frame, private, run_body)
            finally:
                frame.mask, frame.shape, frame.lanes = mask, shape, lanes

        return run

    def run_speculatively(
        self, lanes_max: int, own_bytes: int, private: tuple[tir.Buffer, ...]
    ) -> Run:
        """Return a function that tries private copies per lane, or runs serially.

        It runs serially if a lane has read bytes that it did not write.
        """
        lanes = self.run_in_lanes(lanes_max, own_bytes, private)
        refuted = False

        def run(frame: CallFrame) -> None:
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
    frame: CallFrame, private: tuple[tir.Buffer, ...], body: Callable[[], None]
) -> None:
    if not private:
        body()
        return
    views = dict(frame.views)
    copies = [
        (views[buffer.name], _privatize(frame, views, buffer)) for buffer in private
    ]
    try:
        body()
    finally:
        frame.views = views
    for view, copy in copies:
        start = int(view.base_bytes)
        shared = view.storage[start : start + view.buffer.span_elements * view.scale]
        _copy_back(shared, copy, frame.lanes)


def _privatize(frame: CallFrame, views: dict[str, View], buffer: tir.Buffer) -> Pointer:
    shared = views[buffer.name]
    plain = allocate_undefined(buffer, frame.lanes, frame.shape)
    copy = replace(plain, shadow=np.zeros_like(plain.storage))
    start, end = int(shared.base_bytes), int(shared.base_bytes) + plain.extent_bytes
    for name, view in views.items():
        # Views left by lanes that have ended have many bases; nothing reads them again.
        if view.storage is not shared.storage or isinstance(view.base, np.ndarray):
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
    # In reversed order, the first lane that wrote a byte is the last of all.
    last = lanes - 1 - np.argmax(written[::-1], axis=0)
    touched = written.any(axis=0)
    columns = np.arange(len(shared))
    shared[touched] = values[last, columns][touched]
