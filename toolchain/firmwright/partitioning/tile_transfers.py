"""Tile the calls of engines with private memory, so that transfers overlap with computation.

The copies of input and output tiles form a double-buffered pipeline. Calls are not tiled if runs
are pipelined, the engine itself defines the input or reads the output, or the user placed a tensor.
Results are bit-identical.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.ir.graph.nodes import Call, Value
from firmwright.ir.graph.opdef import OpTable
from firmwright.ir.module import AnyFunction, IRModule
from firmwright.partitioning.device_map import DeviceMap
from firmwright.partitioning.engine_instances import engine_device
from firmwright.partitioning.engine_split import calls_of_part, operator_of, region_of_part
from firmwright.partitioning.memory_domains import MemoryDomains
from firmwright.passes.graph.assign_pools import with_unique_names
from firmwright.passes.graph.multi_core_split import CallSplitter
from firmwright.passes.graph.row_slicing import CallSlice, concatenate_parts

TILE_BYTES_MIN = 1024
"""Minimum number of bytes that a tile transfers in and out, as starting a transfer has a cost."""


def insert_tile_transfers(module: IRModule, ops: OpTable) -> IRModule:
    is_private = any(pool.targets for pool in module.pools)
    if not module.graphs or not is_private or module.pipelined_runs:
        return module
    module = with_unique_names(module)
    domains = MemoryDomains(module, ops, DeviceMap(module))
    domains.join_results()
    users = frozenset(
        (role, _engine(domains.device_map, call), domains.root(value.name))
        for call in domains.calls
        for role, values in (("makes", call.outputs), ("reads", call.variables))
        for value in values
    )
    tiling = _TileTransferBuilder(module, CallSplitter(module, ops), domains, users)
    for graph in module.graphs:
        body = tuple(stmt for call in graph.body for stmt in tiling.tile(call))
        tiling.module = tiling.module.with_function(replace(graph, body=body))
    return tiling.module


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
    splitter: CallSplitter
    domains: MemoryDomains
    users: frozenset[tuple[str, _Engine | None, str]]
    """Engines that make or read the values of a domain."""
    functions: UniqueNamer = field(init=False)

    def __post_init__(self) -> None:
        self.functions = UniqueNamer(self.module.functions)

    def tile(self, call: Call) -> Sequence[Call]:
        engine, region = _engine(self.domains.device_map, call), self.module.callee(call.op)
        inner = operator_of(region, call)
        if engine is None or inner is None or len(call.inputs) != 1:
            return [call]
        parts = self._parts(inner, engine) if self._crosses_memories(call, engine) else None
        return [call] if parts is None else self._pipeline(call, region, parts)

    def _crosses_memories(self, call: Call, engine: _Engine) -> bool:
        """Return whether input and output cross memories and the user placed neither."""
        (x,), (y,) = call.inputs, call.outputs
        if x is None or not self.splitter.placed.isdisjoint({x.name, y.name}):
            return False
        maker, reader = self.domains.root(x.name), self.domains.root(y.name)
        return self.users.isdisjoint({("makes", engine, maker), ("reads", engine, reader)})

    def _parts(self, inner: Call, engine: _Engine) -> tuple[CallSlice, ...] | None:
        moved = sum(value.type.size_bytes for value in (*inner.variables, *inner.outputs))
        count = min(engine.tiles, moved // TILE_BYTES_MIN)
        if len(inner.variables) != 1 or inner.op == "fully_connected" or count < 2:
            return None
        return self.splitter.split(inner, ((engine.device, 1),) * count)

    def _pipeline(
        self, call: Call, region: AnyFunction | None, parts: Sequence[CallSlice]
    ) -> list[Call]:
        body: list[Call] = []
        outward: list[Call] = []
        tiles: list[Value] = []
        for part in parts:
            tile = region_of_part(region, part.call)
            name = self.functions.unique(tile.name)
            attrs = {**tile.attrs, "symbol": f"{tile.attrs['symbol']}{name[len(tile.name) :]}"}
            tile = replace(tile, name=name, attrs=attrs)
            self.module = self.module.with_function(tile)
            inward, following = calls_of_part(part, tile, self.splitter)
            body += [*inward, *outward]
            outward = following
            tiles += outward[0].outputs
        return [*body, *outward, concatenate_parts(call, tiles)]
