"""Execution of a model's C code in this process: a shared library loaded by cffi."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import cffi
import numpy as np
from numpy.typing import NDArray

from firmwright.base.closeable import Closeable
from firmwright.base.dtypes import Array, get_dtype
from firmwright.base.errors import DeviceError, UsageError
from firmwright.base.templates import render_template

if TYPE_CHECKING:
    from cffi import FFI

    CData: TypeAlias = FFI.CData

_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class LibraryTensor:
    """An input or output: tensor name, C field, element type and size."""

    name: str
    field: str
    dtype: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LibraryConstants:
    """A pool outside the library.

    `scope` is `external` (a pointer), `port` (a function that reads) or `async` (one
    that starts reading and one that waits).
    """

    name: str
    scope: str
    data: bytes


@dataclass(frozen=True, slots=True)
class LibraryModel:
    """The C interface of a model.

    `inputs_in_pools` and `outputs_in_pools` mark tensors in pools. `alignment` is the
    largest that any pool or buffer requires. `params` is the parameter block of a model
    without linked constants, with `param_count` pointers into it. `state` names the
    state buffers. Each of the `devices` executes a call when it starts.
    """

    name: str
    run_symbol: str
    pools: tuple[tuple[str, int], ...]
    inputs: tuple[LibraryTensor, ...]
    outputs: tuple[LibraryTensor, ...]
    inputs_in_pools: bool = True
    outputs_in_pools: bool = True
    alignment: int = _ALIGNMENT
    params: bytes | None = None
    param_count: int = 0
    has_init: bool = False
    state: tuple[str, ...] = ()
    const_pools: tuple[LibraryConstants, ...] = ()
    devices: tuple[str, ...] = ()
    has_probe_callback: bool = False

    @property
    def has_params_in_pools(self) -> bool:
        return self.params is not None and bool(self.devices)


class LibrarySession(Closeable):
    """A loaded model library with memory for one instance of the model."""

    def __init__(self, library: Path, model: LibraryModel) -> None:
        self._model = model
        self._ffi = cffi.FFI()
        header = render_template("firmwright.device", "library.h.j2", model=model)
        self._ffi.cdef(header)
        try:
            self._library = self._ffi.dlopen(str(library))
        except OSError as error:
            what = f"the library cannot be loaded: {error}."
            raise DeviceError(what, where=str(library)) from error
        self._memory: list[NDArray[np.uint8]] = []
        self._is_running = False
        self._pools = self._struct("workspace_pools")
        self._in = self._struct("inputs")
        self._out = self._struct("outputs")
        self._callbacks: list[CData] = []
        for constants in model.const_pools:
            self._map_constants(constants)
        self._devices = self._map_devices()
        self._params = self._map_params()
        if model.has_params_in_pools:
            self._pools.params = self._params
        self._map_memory()

    def close(self) -> None:
        if self._library is not None and not self._is_running:
            self._ffi.dlclose(self._library)
            self._library = None

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run one inference; return the outputs in order as flat arrays by name."""
        expected = [tensor.name for tensor in self._model.inputs]
        if sorted(inputs) != sorted(expected):
            what = f"the inputs are {sorted(inputs)}; the model has {expected}."
            raise UsageError(what, where=self._model.name)
        for tensor in self._model.inputs:
            dtype = get_dtype(tensor.dtype).np
            data = np.ascontiguousarray(inputs[tensor.name], dtype).tobytes()
            if len(data) != tensor.size_bytes:
                raise UsageError(f"it has {len(data)} bytes.", where=tensor.name)
            self._ffi.memmove(getattr(self._in, tensor.field), data, tensor.size_bytes)
        params = None if self._model.has_params_in_pools else self._params
        more = [item for item in (params, self._devices) if item is not None]
        if self._model.has_probe_callback:
            more.append(self._ffi.NULL)
        run = getattr(self._library, self._model.run_symbol)
        statuses: list[int] = []

        # The references of this function outlive an interrupted session.
        def execute() -> None:
            statuses.append(run(self._in, self._out, self._pools, *more))
            self._is_running = False

        # In a thread, since no signal is handled during a call of C. A signal that
        # comes before the start leaves the library loaded.
        self._is_running = True
        worker = threading.Thread(target=execute, daemon=True)
        worker.start()
        worker.join()
        if statuses != [0]:
            what = f"the model's run returned {statuses[0]}."
            raise DeviceError(what, where=self._model.name)
        return {tensor.name: self._read(tensor) for tensor in self._model.outputs}

    def reset(self) -> None:
        if self._model.state:
            self._function("reset")(self._pools)

    def _read(self, tensor: LibraryTensor) -> Array:
        pointer = getattr(self._out, tensor.field)
        data = bytes(self._ffi.buffer(pointer, tensor.size_bytes))
        return np.frombuffer(data, get_dtype(tensor.dtype).np).copy()

    def _function(self, name: str) -> CData:
        return getattr(self._library, f"{self._model.name}_{name}")

    def _struct(self, name: str) -> CData:
        return self._ffi.new(f"struct {self._model.name}_{name} *")

    def _map_memory(self) -> None:
        model = self._model
        for pool, size_bytes in model.pools:
            setattr(self._pools, pool, self._allocate(size_bytes))
        if model.has_init:
            self._function("init")(self._pools)
        self.reset()
        if model.outputs_in_pools:
            self._function("map_io")(self._pools, self._in, self._out)
        if not model.inputs_in_pools:
            self._allocate_tensors(self._in, model.inputs)
        if not model.outputs_in_pools:
            self._allocate_tensors(self._out, model.outputs)

    def _allocate_tensors(
        self, struct: CData, tensors: tuple[LibraryTensor, ...]
    ) -> None:
        for tensor in tensors:
            setattr(struct, tensor.field, self._allocate(tensor.size_bytes))

    def _map_constants(self, constants: LibraryConstants) -> None:
        data = constants.data
        if constants.scope == "external":
            setattr(self._pools, constants.name, self._copied(data))
            return
        begun: list[tuple[int, CData, int]] = []

        def read(context: CData, offset: int, target: CData, size_bytes: int) -> int:
            if offset + size_bytes > len(data):
                return -1
            self._ffi.memmove(target, data[offset : offset + size_bytes], size_bytes)
            return 0

        def start(context: CData, offset: int, target: CData, size_bytes: int) -> int:
            begun.append((offset, target, size_bytes))
            return 0 if len(begun) == 1 else -1

        def wait(context: CData) -> int:
            """Copy as late as possible, to expose a missing wait."""
            return read(context, *begun.pop())

        reader = getattr(self._pools, constants.name)
        first = start if constants.scope == "async" else read
        kind = "int32_t(void *, uint32_t, void *, uint32_t)"
        reader.read = self._callback(kind, first)
        if constants.scope == "async":
            reader.wait = self._callback("int32_t(void *)", wait)

    def _map_devices(self) -> CData:
        """Return the struct of devices; each executes a call when it starts."""
        if not self._model.devices:
            return None
        devices = self._struct("devices")
        for name in self._model.devices:
            does = self._function(f"on_{name}")

            def start(
                context: CData, call: int, pools: CData, does: CData = does
            ) -> int:
                does(call, pools)
                return 0

            device = getattr(devices, name)
            pools_type = f"struct {self._model.name}_workspace_pools *"
            kind = f"int32_t(void *, uint32_t, {pools_type})"
            device.start = self._callback(kind, start)
            kind = "int32_t(void *, uint32_t)"
            device.wait = self._callback(kind, lambda context, call: 0)
        return devices

    def _callback(self, kind: str, function: Callable[..., int]) -> CData:
        """Return a C function that calls `function` as long as the session exists."""
        self._callbacks.append(self._ffi.callback(kind, function, error=-1))
        return self._callbacks[-1]

    def _map_params(self) -> CData:
        block = self._model.params
        if block is None:
            return None
        params = self._struct("params")
        self._function("map_params")(self._copied(block), params)
        return params

    def _copied(self, data: bytes) -> CData:
        """Return a pointer to a copy of `data` that lives as long as the session."""
        pointer = self._allocate(len(data))
        self._ffi.memmove(pointer, data, len(data))
        return pointer

    def _allocate(self, size_bytes: int) -> CData:
        alignment = max(self._model.alignment, _ALIGNMENT)
        memory = np.zeros(size_bytes + alignment, np.uint8)
        self._memory.append(memory)
        start = -memory.ctypes.data % alignment
        return self._ffi.cast("void *", memory.ctypes.data + start)
