"""The C interface of a planned module: pools, tensors, placements and function signatures.

Offsets and sizes are in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.base.dtypes import FLOAT32
from firmwright.base.errors import InternalError
from firmwright.codegen.c_expr import float_literal
from firmwright.codegen.c_names import ModelNames
from firmwright.codegen.c_writer import LINE_COLUMNS
from firmwright.codegen.device_calls import DeviceCalls, collect_device_calls
from firmwright.ir import tir
from firmwright.ir.core import Constant
from firmwright.ir.module import IoTensor, IRModule, StateTensor
from firmwright.ir.tir.traversal import prim_calls, statements


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
    """A buffer at a fixed pool offset.

    A `direct` buffer is declared on the pool rather than on a view.
    """

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


@dataclass(frozen=True, slots=True)
class IoTensorInfo:
    """The C names and type of an input or output, and its placement if it is in a pool."""

    io: IoTensor
    macro: str
    c_type: str
    alignment: int
    placed: PlacedBuffer | None

    @property
    def field(self) -> str:
        return self.io.buffer

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
    """A state tensor with its field in `struct NAME_state`, placement and initial value."""

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

    With `in_pools`, inputs and outputs are in pools, except for an input streamed in `rows`. With
    `has_init`, constants are copied to the pools before the first run. `state` persists between
    runs. `devices` are the devices other than the main core.
    """

    names: ModelNames
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
    state: tuple[StateTensorInfo, ...] = ()
    devices: tuple[DeviceCalls, ...] = ()

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
        return self.rows is not None or any(
            self._shares(place, other)
            for tensor in self.inputs
            if (place := tensor.placed) is not None
            for other in self.placed
            if other.buffer.name != tensor.field
        )

    @staticmethod
    def _shares(a: PlacedBuffer, b: PlacedBuffer) -> bool:
        return a.pool == b.pool and a.offset < b.end and b.offset < a.end


@dataclass(frozen=True, slots=True)
class FunctionSignatures:
    """The prototypes of the interface functions, for declarations and definitions.

    `front` is a line before each definition: the macro that selects a section, or "".
    """

    interface: ModelInterface
    unlinked: bool
    front: str = ""

    @property
    def map_io(self) -> str:
        name = self.interface.names.prefix
        return self._signature(
            f"void {name}_map_io(",
            f"const struct {name}_workspace_pools *pools, struct {name}_inputs *in, "
            f"struct {name}_outputs *out)",
        )

    @property
    def init(self) -> str:
        name = self.interface.names.prefix
        return self._signature(f"void {name}_init(", f"const struct {name}_workspace_pools *pools)")

    @property
    def reset(self) -> str:
        name = self.interface.names.prefix
        return self._signature(
            f"void {name}_reset(", f"const struct {name}_workspace_pools *pools)"
        )

    @property
    def save_state(self) -> str:
        name = self.interface.names.prefix
        return self._signature(
            f"void {name}_save_state(",
            f"const struct {name}_workspace_pools *pools, struct {name}_state *state)",
        )

    @property
    def load_state(self) -> str:
        name = self.interface.names.prefix
        return self._signature(
            f"void {name}_load_state(",
            f"const struct {name}_workspace_pools *pools, const struct {name}_state *state)",
        )

    @property
    def map_params(self) -> str:
        name = self.interface.names.prefix
        return self._signature(
            f"void {name}_map_params(", f"const void *block, struct {name}_params *params)"
        )

    @property
    def run(self) -> str:
        name = self.interface.names.prefix
        return self._signature(
            f"int32_t {name}_run(",
            f"const struct {name}_inputs *in, const struct {name}_outputs *out, {self._memory}",
        )

    @property
    def one_step(self) -> str:
        name = self.interface.names.prefix
        return self._signature(
            f"int32_t {name}_step(",
            f"struct {name}_progress *at, const struct {name}_inputs *in, "
            f"const struct {name}_outputs *out, {self._memory}",
        )

    def on_device(self, device: str) -> str:
        """Return the prototype of the function with which a core executes one of its calls."""
        name = self.interface.names.prefix
        pools = f"const struct {name}_workspace_pools *pools)"
        return self._signature(f"void {name}_on_{device}(", f"uint32_t call, {pools}")

    def transfer_of(self, device: str) -> str:
        """Return the prototype of the function that returns the addresses of a copy."""
        name = self.interface.names.prefix
        pools = f"const struct {name}_workspace_pools *pools)"
        head = f"struct {name}_transfer {name}_transfer_of_{device}("
        return self._signature(head, f"uint32_t call, {pools}")

    @property
    def feed_row(self) -> str:
        name = self.interface.names.prefix
        row = f"const {self._row_type} *row"
        return self._signature(f"int32_t {name}_feed_row(", f"uint32_t y, {row}, {self._memory}")

    @property
    def finish(self) -> str:
        name = self.interface.names.prefix
        out = f"const struct {name}_outputs *out"
        return self._signature(f"int32_t {name}_finish(", f"{out}, {self._memory}")

    @property
    def step(self) -> str:
        name = self.interface.names.prefix
        row = f"const {self._row_type} *row"
        head = f"static int32_t {name}_step("
        return self._signature(head, f"int32_t step, {row}, {self._memory}")

    @property
    def _row_type(self) -> str:
        return self.interface.rows.c_type if self.interface.rows else "void"

    @property
    def _memory(self) -> str:
        name = self.interface.names.prefix
        params = f", const struct {name}_params *params" if self.unlinked else ""
        devices = f", const struct {name}_devices *devices" if self.interface.devices else ""
        return f"const struct {name}_workspace_pools *pools{params}{devices})"

    def _signature(self, head: str, params: str) -> str:
        """Wrap the prototype to the column limit, leaving room for a semicolon.

        Continuation lines align with the first parameter.
        """
        lines = [head]
        for param in params.split(", "):
            last = lines[-1]
            if last != head and len(last) + len(param) + 3 > LINE_COLUMNS:
                lines.append(" " * len(head) + param)
            else:
                lines[-1] = last + (param if last == head else f" {param}")
            lines[-1] += "" if param.endswith(")") else ","
        return self.front + "\n".join(lines)


def build_interface(module: IRModule, main: tir.PrimFunc, names: ModelNames) -> ModelInterface:
    pool_params = [param for param in main.params if param.role == "pool"]
    placed = find_placed_buffers(main)
    in_pools = module.io.mode == "arena"
    sections = {pool.name: pool.section for pool in module.pools}
    by_name = {place.buffer.name: place for place in placed}

    def tensor(io: IoTensor) -> IoTensorInfo:
        place = by_name.get(io.buffer) if in_pools else None
        buffer = place.buffer if place else _io_param(main, io)
        alignment = max(buffer.alignment, buffer.dtype.size_bytes)
        macro = names.macro(io.buffer)
        return IoTensorInfo(io, macro, io.type.dtype.c_type, alignment, place)

    inputs = tuple(tensor(io) for io in module.io.inputs)
    operators = {call.op for call in prim_calls(main.body) if call.op >= 0}
    return ModelInterface(
        names=names,
        in_pools=in_pools,
        rows=_row_input(inputs[0]) if module.io.stream_input_rows else None,
        pools=tuple(_pool(names, param, placed, sections) for param in pool_params),
        inputs=inputs,
        outputs=tuple(tensor(io) for io in module.io.outputs),
        placed=placed,
        offset_stems=_offset_stems(placed),
        operators=len(operators),
        operator_index_end=1 + max(operators, default=-1),
        has_init=any(is_ram_constant_copy(module, call) for call in prim_calls(main.body)),
        state=tuple(
            StateTensorInfo(state, by_name[state.buffer], module.constants[state.initial])
            for state in module.io.state
        ),
        devices=collect_device_calls(main),
    )


def is_ram_constant_copy(module: IRModule, call: tir.PrimFuncCall) -> bool:
    """Return whether a call copies a RAM-resident constant, which is done once before any run."""
    callee = module.functions.get(call.callee)
    return isinstance(callee, tir.PrimFunc) and bool(callee.attrs.get("keeps"))


def find_placed_buffers(main: tir.PrimFunc) -> tuple[PlacedBuffer, ...]:
    placed = {
        param.name: PlacedBuffer(param.value, param.name, 0, False)
        for param in main.params
        if param.role == "pool" and isinstance(param.value, tir.Buffer)
    }
    pools = set(placed)
    for node in statements(main.body):
        if not isinstance(node, tir.DeclBuffer) or not isinstance(node.source.offset, tir.IntImm):
            continue
        source = placed.get(node.source.buffer.name)
        if source is not None:
            step = source.buffer.dtype.size_bytes
            offset = source.offset + node.source.offset.value * step
            direct = node.source.buffer.name in pools
            placed[node.buffer.name] = PlacedBuffer(node.buffer, source.pool, offset, direct)
    return tuple(place for name, place in placed.items() if name not in pools)


def _offset_stems(placed: Sequence[PlacedBuffer]) -> dict[str, str]:
    namer = UniqueNamer()
    return {item.buffer.name: namer.unique(item.buffer.name.upper()) for item in placed}


def _pool(
    names: ModelNames, param: tir.Param, placed: Sequence[PlacedBuffer], sections: dict[str, str]
) -> WorkspacePool:
    buffer = param.value
    if not isinstance(buffer, tir.Buffer):
        raise InternalError(f"the pool {param.name} is not a buffer")
    inside = [place.alignment for place in placed if place.pool == buffer.name]
    alignment = max(buffer.alignment, *inside, 1)
    macro = names.macro(buffer.name)
    return WorkspacePool(
        buffer.name, macro, buffer.size_bytes, alignment, sections.get(buffer.name, "")
    )


def _row_input(tensor: IoTensorInfo) -> StreamedInput:
    kind = tensor.io.type
    count = kind.shape[1]
    size_bytes = kind.size_bytes // count
    alignment = max(4 if size_bytes % 4 == 0 else 1, kind.dtype.size_bytes)
    return StreamedInput(
        tensor.field,
        tensor.macro,
        tensor.c_type,
        count,
        kind.elements // count,
        size_bytes,
        alignment,
    )


def _io_param(main: tir.PrimFunc, io: IoTensor) -> tir.Buffer:
    for param in main.params:
        if param.name == io.buffer and isinstance(param.value, tir.Buffer):
            return param.value
    raise InternalError(f"the planned module has no buffer {io.buffer} for the tensor {io.name}")
