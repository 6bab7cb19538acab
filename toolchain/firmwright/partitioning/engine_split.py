"""Splitting of the calls of accelerators: over the accelerator and the cores, and into tiles.

The parts are predicted to end together, or have the share that the user requests. Calls of which
the accelerator's patterns do not take a part stay whole. Results are bit-identical.

Tiles make transfers to private memory overlap with computation, as a double-buffered pipeline.
Calls are not tiled if runs are pipelined, the engine itself defines the input or reads the output,
or the user placed a tensor.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.boards import Board
from firmwright.boards.peripherals import DmaController
from firmwright.ir.core import UNCONSTRAINED
from firmwright.ir.graph import Call, Function, Value
from firmwright.ir.graph.attributes.base import NO_ATTRS
from firmwright.ir.graph.devices import module_cores
from firmwright.ir.module import AnyFunction, IRModule
from firmwright.ops.call_slices import CallSlice, concatenate_parts
from firmwright.ops.opdef import OpTable
from firmwright.partitioning.device_map import DeviceMap
from firmwright.partitioning.engine_instances import engine_device, listed_engines
from firmwright.partitioning.memory_domains import MemoryDomains
from firmwright.partitioning.offload import refusal
from firmwright.partitioning.pattern_matching import active_backends, all_matches
from firmwright.partitioning.run_pipelining import CallCycles
from firmwright.partitioning.target_resolution import target_of
from firmwright.passes.graph.multi_core_split import CallSplitter
from firmwright.passes.graph.value_names import with_unique_names


def split_over_engines(
    module: IRModule, ops: OpTable, predict: CallCycles, find_board: Callable[[], Board]
) -> IRModule:
    """Return the module with calls split; the identical module if none is requested."""
    requests = module.results.offload_shares
    listed = listed_engines(module)
    if not requests and not listed:
        return module
    module = with_unique_names(module)
    splitter, calls = CallSplitter(module, ops), dict(_engine_calls(module))
    free = [c for c in calls.values() if c.device in listed and splitter.is_large(c.inner)]
    shares = _balanced_shares(module, free, predict, find_board().dma)
    shares |= {tensor: int(text.partition(":")[2]) for tensor, text in requests}
    parts: dict[str, Sequence[Call]] = {}
    for tensor in shares:
        if tensor in calls:
            module, parts[tensor] = _split(module, calls[tensor], splitter, shares[tensor])
    for tensor, text in requests:
        if not parts.get(tensor):
            problem = "it cannot be divided into parts that the target takes"
            if tensor not in calls:
                problem = "the target does not compute it alone and concurrently with the core"
            raise refusal(module, tensor, text, problem)
    for graph in module.graphs:
        body = ((call.outputs and parts.get(call.outputs[0].name)) or [call] for call in graph.body)
        module = module.with_function(replace(graph, body=tuple(chain.from_iterable(body))))
    return splitter.with_constants(module)


@dataclass(frozen=True, slots=True)
class _EngineCall:
    """A call of a region with one operator; `inner` is this operator on the call's values."""

    call: Call
    inner: Call
    target: str
    device: str


def _engine_calls(module: IRModule) -> Iterator[tuple[str, _EngineCall]]:
    device_map = DeviceMap(module)
    for call in (call for graph in module.graphs for call in graph.body):
        match, inner = device_map.backend_for(call), operator_of(module.callee(call.op), call)
        device = engine_device(module, match[0]) if match else ""
        if match and inner and device:
            yield call.outputs[0].name, _EngineCall(call, inner, match[0], device)


def _balanced_shares(
    module: IRModule, calls: Sequence[_EngineCall], predict: CallCycles, dma: DmaController | None
) -> dict[str, int]:
    """Return the percentage of each call for its accelerator with which all parts end together."""
    body: list[Call] = []
    for call in (call for item in calls for call in (item.call, item.inner)):
        body.append(replace(call, outputs=(replace(call.outputs[0], name=f"part{len(body)}"),)))
    params = tuple({value.name: value for call in body for value in call.variables}.values())
    results = tuple(call.outputs[0] for call in body)
    alone = Function(module.entry.name, params, tuple(body), results)
    cycles = predict(module.with_function(alone)) if calls else ()
    shares: dict[str, int] = {}
    for item, engine, core in zip(calls, cycles[::2], cycles[1::2], strict=True):
        moved = (*item.call.variables, *item.call.outputs)
        costs = (
            DeviceMap(module).transfer_cycles(item.target, v.type.size_bytes, dma) for v in moved
        )
        on_engine = (engine + sum(costs)) * len(module_cores(module))
        shares[item.call.outputs[0].name] = round(100 * core / (core + on_engine))
    return shares


def _split(
    module: IRModule, item: _EngineCall, splitter: CallSplitter, share: int
) -> tuple[IRModule, Sequence[Call]]:
    """Return the calls that replace a call, none if it cannot be divided."""
    if share in (0, 100):
        return module, [item.call if share else item.inner]
    cores = module_cores(module)
    shares = [(item.device, share * len(cores)), *((core, 100 - share) for core in cores)]
    parts = splitter.split(item.inner, shares)
    if parts is None:
        return module, []
    own, *others = parts
    region = region_of_part(module.callee(item.call.op), own.call)
    active = [backend for backend in active_backends(module) if backend.name == item.target]
    entry = (region.attrs.get("composite"), (0,))
    if not any(entry in group.entries for group in all_matches(region, module, active)):
        return module, []
    on_engine, outward = calls_of_part(own, region, splitter)
    on_cores = (call for part in others for call in (*part.slices, part.call))
    values = [(outward or on_engine)[-1].outputs[0], *(part.output for part in others)]
    whole = concatenate_parts(item.inner, values, own.axis)
    return module.with_function(region), [*on_engine, *on_cores, *outward, whole]


def operator_of(region: AnyFunction | None, call: Call) -> Call | None:
    """Return the operator on the values of the region's call."""
    if not isinstance(region, Function) or not len(region.body) == len(call.outputs) == 1:
        return None
    (inner,) = region.body
    values = {param.name: v for param, v in zip(region.params, call.inputs, strict=True)}
    inputs = tuple(v and values.get(v.name, v) for v in inner.inputs)
    return replace(inner, inputs=inputs, outputs=call.outputs, span=call.span)


def region_of_part(region: AnyFunction | None, part: Call) -> Function:
    assert isinstance(region, Function)
    params = tuple(dict.fromkeys(part.variables))
    outputs = tuple(replace(value, virtual_device=UNCONSTRAINED) for value in part.outputs)
    return replace(region, params=params, body=(replace(part, outputs=outputs),), results=outputs)


def calls_of_part(
    part: CallSlice, region: Function, splitter: CallSplitter
) -> tuple[list[Call], list[Call]]:
    """Return the calls that compute a part, and its copy from private memory."""
    call = Call(f"@{region.name}", region.params, part.call.outputs, NO_ATTRS, part.call.span)
    if not DeviceMap(splitter.module).private_pools(target_of(region)):
        return [*part.slices, call], []
    inward = [splitter.copy(value, call.span, outward=False) for value in region.params]
    call = replace(call, inputs=tuple(copy.outputs[0] for copy in inward))
    return [*part.slices, *inward, call], [splitter.copy(part.output, call.span, outward=True)]


TILE_BYTES_MIN = 1024
"""Minimum number of bytes that a tile transfers in and out, as starting a transfer has a cost."""


def insert_tile_transfers(module: IRModule, ops: OpTable) -> IRModule:
    is_private = any(pool.targets for pool in module.pools)
    if not module.graphs or not is_private or module.results.pipelined_runs:
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
