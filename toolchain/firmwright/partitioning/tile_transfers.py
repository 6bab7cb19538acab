"""Tile the calls of engines with private memory, so that transfers overlap with computation.

The copies of input and output tiles form a double-buffered pipeline. Calls are not tiled if runs
are pipelined, the engine itself defines the input or reads the output, or the user placed a tensor.
Results are bit-identical.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.ir.graph.devices import make_copy, placed_values
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.graph.opdef import OpTable, RowWindow
from firmwright.ir.module import IRModule
from firmwright.partitioning.device_map import DeviceMap
from firmwright.partitioning.engine_instances import engine_device
from firmwright.partitioning.memory_domains import MemoryDomains
from firmwright.partitioning.regions import operator_of, region_of_part
from firmwright.passes.graph.assign_pools import with_unique_names
from firmwright.passes.graph.row_slicing import (
    CallSlice,
    concatenate_parts,
    cut_alignment,
    slice_rows,
)

TILE_BYTES_MIN = 1024
"""Minimum number of bytes that a tile transfers in and out, as starting a transfer has a cost."""


def insert_tile_transfers(module: IRModule, ops: OpTable) -> IRModule:
    is_private = any(pool.targets for pool in module.pools)
    if not module.graphs or not is_private or module.pipelined_runs:
        return module
    module = with_unique_names(module)
    domains = MemoryDomains(module, ops, DeviceMap(module))
    domains.join_results()
    placed = placed_values(module)
    users = frozenset(
        (role, _engine(domains.device_map, call), domains.root(value.name))
        for call in domains.calls
        for role, values in (("makes", call.outputs), ("reads", call.variables))
        for value in values
    )
    for graph in module.graphs:
        tiling = _TileTransferBuilder(module, ops, graph, domains, users, placed)
        body = tuple(stmt for call in graph.body for stmt in tiling.tile(call))
        module = tiling.module.with_function(replace(graph, body=body))
    return module


@dataclass(frozen=True, slots=True)
class _Engine:
    """The target that executes a call, its device, and the maximum number of tiles."""

    target: str
    device: str
    tiles: int


def _engine(device_map: DeviceMap, call: Call) -> _Engine | None:
    match = device_map.backend_for(call)
    if match is None or not device_map.private_pools(match[0]):
        return None
    name, backend = match
    is_one = bool(backend.device) and backend.tiles > 1 and not backend.visible_pools
    device = engine_device(device_map.module, name)
    return _Engine(name, device, backend.tiles) if is_one else None


@dataclass
class _TileTransferBuilder:
    module: IRModule
    ops: OpTable
    graph: Function
    domains: MemoryDomains
    users: frozenset[tuple[str, _Engine | None, str]]
    """Engines that make or read the values of a domain."""
    placed: frozenset[str]
    names: UniqueNamer = field(init=False)
    functions: UniqueNamer = field(init=False)

    def __post_init__(self) -> None:
        names = (value.name for value in self.graph.values)
        self.names = UniqueNamer((*names, *self.module.constants))
        self.functions = UniqueNamer(self.module.functions)

    def tile(self, call: Call) -> Sequence[Call]:
        engine, region = _engine(self.domains.device_map, call), self.module.callee(call.op)
        inner = operator_of(region, call)
        if engine is None or inner is None or not isinstance(region, Function):
            return [call]
        if len(call.inputs) != 1 or not self._crosses_memories(call, engine):
            return [call]
        parts = self._parts(inner, engine)
        return [call] if parts is None else self._pipeline(call, region, parts)

    def _crosses_memories(self, call: Call, engine: _Engine) -> bool:
        """Return whether input and output cross memories and the user placed neither."""
        (x,), (y,) = call.inputs, call.outputs
        if x is None or not self.placed.isdisjoint({x.name, y.name}):
            return False
        maker, reader = self.domains.root(x.name), self.domains.root(y.name)
        return self.users.isdisjoint({("makes", engine, maker), ("reads", engine, reader)})

    def _parts(self, inner: Call, engine: _Engine) -> tuple[CallSlice, ...] | None:
        if inner.op not in self.ops or len(inner.variables) != 1:
            return None
        rows = self.ops[inner.op].row_access(make_op_call(inner, self.module))
        moved = sum(value.type.size_bytes for value in (*inner.variables, *inner.outputs))
        count = min(engine.tiles, moved // TILE_BYTES_MIN)
        if not isinstance(rows, RowWindow) or count < 2:
            return None
        shares, alignment = ((engine.device, 1),) * count, cut_alignment(self.module)
        return slice_rows(inner, rows, shares, self.names, alignment)

    def _pipeline(self, call: Call, region: Function, parts: Sequence[CallSlice]) -> list[Call]:
        body: list[Call] = []
        late: list[Call] = []
        seen: list[Value] = []
        for part in parts:
            (x,) = part.call.variables
            inward = make_copy(self.module, x, self.names, call.span, outward=False)
            body += [*part.slices, inward, self._call_of(part, region, inward.outputs[0]), *late]
            late = [make_copy(self.module, part.output, self.names, call.span, outward=True)]
            seen += late[0].outputs
        return [*body, *late, concatenate_parts(call, seen)]

    def _call_of(self, part: CallSlice, region: Function, inside: Value) -> Call:
        name = self.functions.unique(region.name)
        number = name.removeprefix(region.name)
        attrs = {**region.attrs, "symbol": f"{region.attrs['symbol']}{number}"}
        tile = replace(region_of_part(region, part.call), name=name, attrs=attrs)
        self.module = self.module.with_function(tile)
        return Call(f"@{name}", (inside,), (part.output,), {}, part.call.span)
