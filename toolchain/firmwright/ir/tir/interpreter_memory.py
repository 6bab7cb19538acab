"""Interpreter memory: byte arrays with typed, strided, bounds-checked views.

The base of a view is a byte offset: one number, or one per lane for lane-private memory. A `Value`
is an int, bool or `np.float32` if it is equal in all lanes, else an array of at least one axis.
Callers check bounds before `gather` and `scatter`; numpy checks again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from firmwright.base.dtypes import DType
from firmwright.base.errors import InternalError
from firmwright.ir import tir

Array: TypeAlias = NDArray[Any]
Value: TypeAlias = Any
Bytes: TypeAlias = NDArray[np.uint8]
Mask: TypeAlias = "NDArray[np.bool_] | None"

LANE_ALIGNMENT = 16
"""Alignment of private copies, which keeps every view of them aligned."""

POISON = 0xA5
"""The byte that fills undefined memory."""


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

    __slots__ = ("base", "buffer", "misaligned", "scale", "shadow", "storage", "typed", "writable")

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

    def gather(self, position: Value) -> Value:
        if self.misaligned:
            where = np.expand_dims(position * self.scale + self.base, -1) + np.arange(self.scale)
            elements = self.storage.take(where).view(self.buffer.dtype.np)[..., 0]
            return elements if elements.ndim else to_scalar(elements[()])
        where = position + self.base
        return to_scalar(self.typed[where]) if type(where) is int else self.typed.take(where)

    def scatter(self, position: Value, value: Value, mask: Mask) -> None:
        if self.misaligned:
            where = np.expand_dims(position * self.scale + self.base, -1) + np.arange(self.scale)
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
    return View(buffer, pointer) if pointer.shadow is None else TrackedView(buffer, pointer)


def to_scalar(scalar: Any) -> Value:
    return scalar if isinstance(scalar, np.floating) else scalar.item()


def allocate_undefined(buffer: tir.Buffer, lanes: int, shape: tuple[int, ...]) -> Pointer:
    """Allocate poisoned memory for `buffer`, one copy per lane in `lanes`."""
    size = -(-buffer.size_bytes // LANE_ALIGNMENT) * LANE_ALIGNMENT
    storage = np.full(lanes * size, POISON, dtype=np.uint8)
    if lanes == 1:
        return Pointer(storage, 0, buffer.size_bytes, True)
    base = (np.arange(lanes, dtype=np.int64) * size).reshape(shape)
    return Pointer(storage, base, buffer.size_bytes, True)


def make_pointer(array: Array, dtype: DType, where: str, *, writable: bool) -> Pointer:
    """Wrap the caller's array, which must be contiguous and have the parameter's dtype."""
    if array.dtype != dtype.np:
        raise InternalError(f"the argument is {array.dtype}, not {dtype.name}", where=where)
    if not array.flags.c_contiguous:
        raise InternalError("the argument is not contiguous", where=where)
    if writable and not array.flags.writeable:
        raise InternalError("the argument is written but is read-only", where=where)
    return Pointer(array.reshape(-1).view(np.uint8), 0, array.nbytes, writable)


def elements_at(pointer: Pointer, dtype: DType, depth: int) -> tuple[View, Array]:
    """Return a view of the elements of `pointer` as `dtype`, and the indices of all of them.

    The first axis of the indices is the elements, followed by `depth` lane axes (at least one).
    """
    count = pointer.extent_bytes // dtype.size_bytes
    view = make_view(tir.Buffer("", dtype, (count,)), pointer)
    return view, np.arange(count).reshape((count,) + (1,) * max(depth, 1))
