"""Execution of a library with access tracing, which checks the memory plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import cffi
import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import InternalError
from firmwright.device.host_library import LibraryModel, LibrarySession
from firmwright.ir.tir.plan import RelocatedBuffer

if TYPE_CHECKING:
    from cffi import FFI

    CData: TypeAlias = FFI.CData

_DECLARATIONS = """
struct fwr_access_pool {
    const uint8_t *base; uint32_t bytes; const uint16_t *buffer; const uint32_t *planned;
    uint8_t *written; uint16_t *owner; int32_t *writer;
};
struct fwr_access_violation {
    int32_t kind; int32_t operator_index; int32_t pool; uint32_t byte; uint16_t owner;
    int32_t writer;
};
void fwr_access_start(const struct fwr_access_pool *, uint32_t);
void fwr_access_record(const void *, uint32_t, int32_t);
uint32_t fwr_access_violations(struct fwr_access_violation *);
"""  # noqa: E501
_OUTSIDE, _UNWRITTEN = 0, 1


UsedBytes: TypeAlias = Callable[[Mapping[str, Array]], Mapping[str, int]]
"""The bytes in use of buffers by name, for the inputs of a run."""


class AccessTracingSession(LibrarySession):
    """A library session that checks every access; buffers in `kept` survive a run."""

    def __init__(
        self,
        library: Path,
        model: LibraryModel,
        buffers: Sequence[RelocatedBuffer],
        operators: Sequence[str],
        kept: frozenset[str] = frozenset(),
        used_bytes: UsedBytes = lambda inputs: {},
    ) -> None:
        super().__init__(library, model)
        self._buffers = tuple(buffers)
        self._operators = tuple(operators)
        self._kept = kept
        self._used_bytes = used_bytes
        self._watch = cffi.FFI()
        self._watch.cdef(_DECLARATIONS)
        self._watcher = self._watch.dlopen(str(library))
        self._arrays: list[Array] = []
        self._watched = self._watch.new("struct fwr_access_pool[]", len(model.pools))
        for entry, (pool, size_bytes) in zip(self._watched, model.pools, strict=True):
            self._describe(entry, pool, size_bytes)
        self._watcher.fwr_access_start(self._watched, len(model.pools))
        for name in model.state:
            self._touch(name, {}, write=True)

    def close(self) -> None:
        if self._library is not None:
            self._watch.dlclose(self._watcher)
        super().close()

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run once; raise InternalError at the first access that violates the plan."""
        used = self._used_bytes(inputs)
        if self._model.inputs_in_pools:
            for tensor in self._model.inputs:
                self._touch(tensor.field, used, write=True)
        results = super().run(inputs)
        intact: list[str] = []
        if self._model.outputs_in_pools:
            intact += [tensor.field for tensor in self._model.outputs]
            intact += sorted(self._kept)
        for name in (*intact, *self._model.state):
            self._touch(name, used, write=False)
        fault = self._watch.new("struct fwr_access_violation *")
        count = self._watcher.fwr_access_violations(fault)
        if count:
            raise InternalError(self._said(fault, count), where=self._model.name)
        return results

    def _describe(self, entry: CData, pool: str, size_bytes: int) -> None:
        """Tell the watcher for every byte its buffer and its place in the plan.

        A byte belongs to the buffer of number `buffer` (from 1; 0 is none). `planned`
        is its planned address, which indexes `owner` and `writer`, where the watcher
        notes what the byte holds and which operator wrote it.
        """
        buffer = np.zeros(size_bytes, np.uint16)
        planned = np.zeros(size_bytes, np.uint32)
        top = 0
        for number, each in enumerate(self._buffers, 1):
            if each.pool != pool:
                continue
            end = each.offset + each.size_bytes
            buffer[each.offset : end] = number
            planned[each.offset : end] = each.planned + np.arange(each.size_bytes)
            top = max(top, each.planned + each.size_bytes)
        entry.base = self._watch.cast("uint8_t *", self._address(pool))
        entry.bytes = size_bytes
        for field, array, kind in (
            ("buffer", buffer, "uint16_t *"),
            ("planned", planned, "uint32_t *"),
            ("written", np.zeros(size_bytes, np.uint8), "uint8_t *"),
            ("owner", np.zeros(top, np.uint16), "uint16_t *"),
            ("writer", np.full(top, -1, np.int32), "int32_t *"),
        ):
            self._arrays.append(array)
            setattr(entry, field, self._watch.cast(kind, array.ctypes.data))

    def _address(self, pool: str) -> int:
        return int(self._ffi.cast("uintptr_t", getattr(self._pools, pool)))

    def _touch(self, name: str, used: Mapping[str, int], *, write: bool) -> None:
        """Record an access to the bytes of a buffer that are in use, by default all."""
        each = next(buffer for buffer in self._buffers if buffer.name == name)
        address = self._watch.cast("void *", self._address(each.pool) + each.offset)
        size_bytes = used.get(name, each.size_bytes)
        self._watcher.fwr_access_record(address, size_bytes, write)

    def _said(self, fault: CData, count: int) -> str:
        operator = self._by(fault.operator_index)
        pool = self._model.pools[fault.pool][0]
        more = f" ({count - 1:,} more such accesses)" if count > 1 else ""
        place = self._place(pool, fault.byte)
        if fault.kind == _OUTSIDE:
            outside = f"pool {pool} outside its buffers"
            return f"{operator} accesses {outside}: {place}{more}."
        if fault.kind == _UNWRITTEN:
            return f"{operator} reads {place}, which has not been written{more}."
        owner = self._buffers[fault.owner - 1].name
        writer = self._by(fault.writer)
        change = f"{writer} has overwritten with {owner}"
        return f"{operator} reads {place}, which {change}{more}."

    def _by(self, operator: int) -> str:
        if operator < 0:
            return "the run"
        return f"operator {operator} ({self._operators[operator]})"

    def _place(self, pool: str, byte: int) -> str:
        """Describe a byte relative to its buffer, or to the last buffer before it."""
        below = [b for b in self._buffers if b.pool == pool and b.offset <= byte]
        if not below:
            return f"byte {byte}"
        last = max(below, key=lambda b: b.offset)
        beyond = byte - last.offset - last.size_bytes
        if beyond < 0:
            return f"byte {byte - last.offset} of {last.name}"
        return f"{beyond} bytes beyond the end of {last.name}"
