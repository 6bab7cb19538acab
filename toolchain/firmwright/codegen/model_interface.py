"""The C interface of a planned module: pools, tensors, devices; sizes in bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.base.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType
from firmwright.base.errors import InternalError
from firmwright.codegen.c_expr import float_literal
from firmwright.codegen.c_names import ModelNames
from firmwright.codegen.c_writer import LINE_COLUMNS
from firmwright.ir import tir
from firmwright.ir.bounded_axis import BoundedAxis
from firmwright.ir.core import Constant
from firmwright.ir.graph.devices import (
    is_copy_device,
    is_core,
    parse_device,
    private_pools,
)
from firmwright.ir.module import IoTensor, IRModule, StateTensor
from firmwright.ir.tir.traversal import prim_calls, statements
from firmwright.ir.tir.verify_async_calls import without_phase

_POOLS = "const struct NAME_workspace_pools *pools"
_IO = "const struct NAME_inputs *in, const struct NAME_outputs *out"
_PROTOTYPES: Mapping[str, str] = {
    "map_io": (
        f"int32_t NAME_map_io({_POOLS}, struct NAME_inputs *in, struct NAME_outputs "
        "*out)"
    ),
    "init": f"void NAME_init({_POOLS})",
    "reset": f"void NAME_reset({_POOLS})",
    "save_state": f"void NAME_save_state({_POOLS}, struct NAME_state *state)",
    "load_state": f"void NAME_load_state({_POOLS}, const struct NAME_state *state)",
    "map_params": (
        "int32_t NAME_map_params(const void *block, struct NAME_params *params)"
    ),
    "run": f"int32_t NAME_run({_IO}, MEMORY)",
    "step": f"int32_t NAME_step(struct NAME_progress *at, {_IO}, MEMORY)",
    "feed_row": "int32_t NAME_feed_row(uint32_t y, const ELEMENT *row, MEMORY)",
    "finish": "int32_t NAME_finish(const struct NAME_outputs *out, MEMORY)",
    "row_step": "static int32_t NAME_step(int32_t step, const ELEMENT *row, MEMORY)",
    "on_device": f"void NAME_on_DEVICE(uint32_t call, {_POOLS})",
    "transfer_of": (
        f"struct NAME_transfer NAME_transfer_of_DEVICE(uint32_t call, {_POOLS})"
    ),
}
"""The interface functions; MEMORY stands for pools, constants and devices passed."""

RESERVED_NAMES = (*_PROTOTYPES, "check_constants", "id", "version")


@dataclass(frozen=True, slots=True)
class DeviceCalls:
    """A device and its calls, numbered in the order of their first start."""

    name: str
    calls: tuple[tir.PrimFuncCall, ...]

    @property
    def is_core(self) -> bool:
        return is_core(self.name)

    @property
    def is_copier(self) -> bool:
        return is_copy_device(self.name)

    @property
    def channel(self) -> int:
        return parse_device(self.name).device_id

    def number(self, call: tir.PrimFuncCall) -> int:
        """Return the number of `call`; a start and its wait have the same number."""
        return self.calls.index(without_phase(call))


def collect_device_calls(main: tir.PrimFunc) -> tuple[DeviceCalls, ...]:
    """Return every device other than the main core with its calls, sorted by name.

    Raise UsageError for a name that is none, since the C contains it as it is.
    """
    calls: dict[str, dict[tir.PrimFuncCall, None]] = {}
    for call in prim_calls(main.body):
        if call.device:
            parse_device(call.device)
            calls.setdefault(call.device, {})[without_phase(call)] = None
    return tuple(DeviceCalls(name, tuple(calls[name])) for name in sorted(calls))


@dataclass(frozen=True, slots=True)
class WorkspacePool:
    """A byte array that the user provides."""

    name: str
    macro: str
    size_bytes: int
    alignment: int
    section: str


@dataclass(frozen=True, slots=True)
class PlacedBuffer:
    """A buffer at a fixed pool offset; `direct` ones are on the pool, not on views."""

    buffer: tir.Buffer
    pool: str
    offset: int
    direct: bool

    @property
    def alignment(self) -> int:
        return max(self.buffer.alignment, self.buffer.dtype.size_bytes)

    @property
    def end(self) -> int:
        return self.offset + self.buffer.size_bytes

    def overlaps(self, other: PlacedBuffer) -> bool:
        if self.pool != other.pool:
            return False
        return self.offset < other.end and other.offset < self.end


_STORED: Mapping[DType, str] = {
    FLOAT16: "the bits of an IEEE 754 binary16",
    BFLOAT16: "the upper 16 bits of a float",
}


@dataclass(frozen=True, slots=True)
class IoTensorInfo:
    """The C names and type of an input or output, and its placement in a pool."""

    io: IoTensor
    macro: str
    c_type: str
    alignment: int
    placed: PlacedBuffer | None
    is_private: bool
    """Whether only an accelerator can access the pool."""

    @property
    def field(self) -> str:
        return self.io.buffer

    @property
    def storage(self) -> str:
        """How an element of a storage type is stored, "" for other types."""
        dtype = self.io.type.dtype
        if not dtype.computed_as:
            return ""
        bits = f"the bits of a number of {dtype.name}, one to a byte"
        return _STORED.get(dtype, bits)

    @property
    def pool_cast(self) -> str:
        """The cast of a pool address, aligned in spite of -Wcast-align."""
        through = "(void *)" if self.io.type.dtype.size_bytes > 1 else ""
        return f"({self.c_type} *){through}"

    @property
    def size_bytes(self) -> int:
        return self.io.type.size_bytes

    @property
    def quantised(self) -> bool:
        quantization = self.io.type.quantization
        return quantization is not None and not quantization.per_channel

    @property
    def scale(self) -> str:
        assert self.io.type.quantization is not None
        return float_literal(self.io.type.quantization.scales[0], FLOAT32).text

    @property
    def zero_point(self) -> int:
        assert self.io.type.quantization is not None
        return self.io.type.quantization.zero_points[0]


@dataclass(frozen=True, slots=True)
class StateTensorInfo:
    """A state tensor: field of `struct NAME_state`, placement and initial value."""

    io: StateTensor
    placed: PlacedBuffer
    initial: Constant

    @property
    def field(self) -> str:
        return self.io.buffer

    @property
    def c_type(self) -> str:
        return self.io.type.dtype.c_type

    @property
    def fill(self) -> int | None:
        """Return the byte that fills the whole initial value, or None."""
        values = set(self.initial.data)
        return values.pop() if len(values) == 1 else None


@dataclass(frozen=True, slots=True)
class StreamedInput:
    """An input fed row by row: `count` rows of `elements` elements each."""

    field: str
    macro: str
    c_type: str
    count: int
    elements: int
    size_bytes: int
    alignment: int


@dataclass(frozen=True, slots=True)
class ModelInterface:
    """The complete C interface of a model.

    With `in_pools`, inputs and outputs are in pools, except for an input streamed in
    `rows`. With `has_init`, constants are copied to the pools before the first run.
    `state` persists between runs. `devices` are the devices other than the main core.
    Unless `linked`, the caller passes the constants.
    """

    names: ModelNames
    linked: bool
    in_pools: bool
    rows: StreamedInput | None
    pools: tuple[WorkspacePool, ...]
    inputs: tuple[IoTensorInfo, ...]
    outputs: tuple[IoTensorInfo, ...]
    placed: tuple[PlacedBuffer, ...]
    offset_stems: Mapping[str, str]
    operators: int
    operator_index_end: int
    has_init: bool
    has_probe_callback: bool = False
    state: tuple[StateTensorInfo, ...] = ()
    devices: tuple[DeviceCalls, ...] = ()
    axis: BoundedAxis | None = None

    @property
    def sizes_outside(self) -> list[str]:
        """The conditions on which the size of a bounded axis is refused."""
        for tensor in self.inputs:
            if self.axis is not None and tensor.io.name == self.axis.name:
                size, macro = f"*in->{tensor.field}", tensor.macro
                return [f"{size} < {macro}_LEAST", f"{size} > {macro}_MOST"]
        return []

    @property
    def params(self) -> str:
        """The C expression of the struct of unlinked constants; "" if they are linked.

        With devices it is in the struct of pools, which all calls get.
        """
        if self.linked:
            return ""
        return "pools->params" if self.devices else "params"

    @property
    def copies(self) -> bool:
        return any(device.is_copier for device in self.devices)

    def offset_macro(self, buffer: str) -> str:
        return self.names.macro("offset", self.offset_stems[buffer])

    @property
    def tensors(self) -> tuple[IoTensorInfo, ...]:
        return (*self.inputs, *self.outputs)

    @property
    def consumes_input(self) -> bool:
        if self.rows is not None:
            return True
        for tensor in self.inputs:
            if tensor.placed is None:
                continue
            for other in self.placed:
                is_other = other.buffer.name != tensor.field
                if is_other and tensor.placed.overlaps(other):
                    return True
        return False

    def prototype(self, function: str, device: str = "") -> str:
        """Return the wrapped prototype of a function, without the semicolon."""
        memory = _POOLS
        if self.params == "params":
            memory += ", const struct NAME_params *params"
        memory += ", const struct NAME_devices *devices" if self.devices else ""
        element = self.rows.c_type if self.rows else "void"
        memory += ", const struct NAME_probe *probe" if self.has_probe_callback else ""
        words = {"NAME": self.names.prefix, "DEVICE": device, "ELEMENT": element}
        text = _PROTOTYPES[function].replace("MEMORY", memory)
        text = re.sub("|".join(words), lambda match: words[match[0]], text)
        head, _, params = text.partition("(")
        lines, margin = [f"{head}("], " " * (len(head) + 1)
        if len(margin) + max(map(len, params.split(", "))) >= LINE_COLUMNS:
            margin = " " * 4
            lines.append(margin)
        for param in params.split(", "):
            separator = "" if lines[-1].endswith(("(", margin)) else " "
            if separator and len(lines[-1]) + len(param) + 3 > LINE_COLUMNS:
                lines.append(margin + param)
            else:
                lines[-1] += separator + param
            lines[-1] += "" if param.endswith(")") else ","
        return "\n".join(lines)


def build_interface(
    module: IRModule, main: tir.PrimFunc, names: ModelNames
) -> ModelInterface:
    placed = find_placed_buffers(main)
    in_pools = module.io.mode == "arena"
    sections = {pool.name: pool.section for pool in module.pools}
    by_name = {place.buffer.name: place for place in placed}

    def tensor(io: IoTensor) -> IoTensorInfo:
        place = by_name.get(io.buffer) if in_pools else None
        buffer = place.buffer if place else _io_param(main, io)
        alignment = max(buffer.alignment, buffer.dtype.size_bytes)
        is_private = place is not None and place.pool in private_pools(module)
        return IoTensorInfo(
            io=io,
            macro=names.macro(io.buffer),
            c_type=io.type.dtype.c_type,
            alignment=alignment,
            placed=place,
            is_private=is_private,
        )

    def state_tensor(state: StateTensor) -> StateTensorInfo:
        initial = module.constants[state.initial]
        return StateTensorInfo(state, by_name[state.buffer], initial)

    inputs = tuple(map(tensor, module.io.inputs))
    operators: set[int] = set()
    has_init = False
    for call in prim_calls(main.body):
        has_init = has_init or is_ram_constant_copy(module, call)
        if call.op >= 0:
            operators.add(call.op)
    pools = [param for param in main.params if param.role == "pool"]
    namer = UniqueNamer()
    stems: dict[str, str] = {}
    for place in placed:
        name = place.buffer.name
        stems[name] = namer.unique(name.upper())
    return ModelInterface(
        names=names,
        linked=module.settings.link_params,
        in_pools=in_pools,
        rows=_row_input(inputs[0]) if module.io.stream_input_rows else None,
        pools=tuple(_pool(names, param, placed, sections) for param in pools),
        inputs=inputs,
        outputs=tuple(map(tensor, module.io.outputs)),
        placed=placed,
        offset_stems=stems,
        operators=len(operators),
        operator_index_end=1 + max(operators, default=-1),
        has_init=has_init,
        state=tuple(map(state_tensor, module.io.state)),
        devices=collect_device_calls(main),
        axis=module.settings.axis,
    )


def is_ram_constant_copy(module: IRModule, call: tir.PrimFuncCall) -> bool:
    """Return whether a call copies a constant to RAM, once before any run."""
    callee = module.functions.get(call.callee)
    return isinstance(callee, tir.PrimFunc) and bool(callee.attrs.get("keeps"))


def find_placed_buffers(main: tir.PrimFunc) -> tuple[PlacedBuffer, ...]:
    pools: dict[str, PlacedBuffer] = {}
    for param in main.params:
        if param.role == "pool" and isinstance(param.value, tir.Buffer):
            pools[param.name] = PlacedBuffer(param.value, param.name, 0, direct=False)
    placed = dict(pools)
    for node in statements(main.body):
        if not isinstance(node, tir.DeclBuffer):
            continue
        start, source = node.source.offset, placed.get(node.source.buffer.name)
        if source is not None and isinstance(start, tir.IntImm):
            offset = source.offset + start.value * source.buffer.dtype.size_bytes
            direct = node.source.buffer.name in pools
            place = PlacedBuffer(node.buffer, source.pool, offset, direct)
            placed[node.buffer.name] = place
    return tuple(place for name, place in placed.items() if name not in pools)


def _pool(
    names: ModelNames,
    param: tir.Param,
    placed: Sequence[PlacedBuffer],
    sections: dict[str, str],
) -> WorkspacePool:
    buffer = param.value
    if not isinstance(buffer, tir.Buffer):
        raise InternalError(f"the pool {param.name} is not a buffer")
    inside = [place.alignment for place in placed if place.pool == buffer.name]
    alignment = max(buffer.alignment, *inside, 1)
    name, section = buffer.name, sections.get(buffer.name, "")
    return WorkspacePool(name, names.macro(name), buffer.size_bytes, alignment, section)


def _row_input(tensor: IoTensorInfo) -> StreamedInput:
    kind = tensor.io.type
    count = kind.shape[1]
    size_bytes = kind.size_bytes // count
    return StreamedInput(
        field=tensor.field,
        macro=tensor.macro,
        c_type=tensor.c_type,
        count=count,
        elements=kind.elements // count,
        size_bytes=size_bytes,
        alignment=max(4 if size_bytes % 4 == 0 else 1, kind.dtype.size_bytes),
    )


def _io_param(main: tir.PrimFunc, io: IoTensor) -> tir.Buffer:
    for param in main.params:
        if param.name == io.buffer and isinstance(param.value, tir.Buffer):
            return param.value
    raise InternalError(
        f"the planned module has no buffer {io.buffer} for the tensor {io.name}"
    )
