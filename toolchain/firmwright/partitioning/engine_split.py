"""Splitting of the calls of accelerators: over devices, and into tiles.

The parts of accelerator and cores are predicted to end together. Requested shares may
be those of several accelerators. Calls of which an accelerator's patterns do not take a
part stay whole. Results are bit-identical.

Tiles make transfers to private memory overlap with computation, as a double-buffered
pipeline. Calls are not tiled if runs are pipelined, the engine itself defines the input
or reads the output, or the user placed a tensor.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from firmwright.base.c_identifiers import UniqueNamer, to_c_identifier
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
from firmwright.partitioning.offload import OffloadShare, refusal, requested_shares
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
    splitter = CallSplitter(module, ops)
    calls = dict(_engine_calls(module))
    free: list[_EngineCall] = []
    for item in calls.values():
        if item.device in listed and splitter.is_large(item.inner):
            free.append(item)
    shares = _balanced_shares(module, free, predict, find_board().dma)
    shares |= requested_shares(module)
    parts: dict[str, Sequence[Call]] = {}
    for tensor, own in shares.items():
        if tensor in calls:
            module, parts[tensor] = _split(module, calls[tensor], splitter, own)
    for tensor, text in requests:
        if not parts.get(tensor):
            problem = "it cannot be divided into parts that each target takes"
            if tensor not in calls:
                problem = (
                    "the target does not compute it alone and concurrently with the "
                    "core"
                )
            raise refusal(module, tensor, text, problem)
    for graph in module.graphs:
        module = module.with_function(_with_parts(graph, parts))
    return splitter.with_constants(module)


def _with_parts(graph: Function, parts: Mapping[str, Sequence[Call]]) -> Function:
    """Return the graph with parts in place of calls, by the calls' first outputs."""
    body: list[Call] = []
    for call in graph.body:
        replacement = parts.get(call.outputs[0].name) if call.outputs else None
        if replacement:
            body += replacement
        else:
            body.append(call)
    return replace(graph, body=tuple(body))


@dataclass(frozen=True, slots=True)
class _EngineCall:
    """A call of a region of one operator; `inner` is the operator on its values."""

    call: Call
    inner: Call
    target: str
    device: str


def _engine_calls(module: IRModule) -> Iterator[tuple[str, _EngineCall]]:
    """Yield the calls that an accelerator executes as single operators, by output."""
    device_map = DeviceMap(module)
    for graph in module.graphs:
        for call in graph.body:
            match = device_map.backend_for(call)
            inner = operator_of(module.callee(call.op), call)
            if match is None or inner is None:
                continue
            target, _ = match
            device = engine_device(module, target)
            if device:
                yield call.outputs[0].name, _EngineCall(call, inner, target, device)


def _balanced_shares(
    module: IRModule,
    calls: Sequence[_EngineCall],
    predict: CallCycles,
    dma: DmaController | None,
) -> dict[str, tuple[OffloadShare, ...]]:
    """Return the accelerators' shares of calls with which all parts end together.

    With a share s, the accelerator takes s * engine cycles and each of n cores (1 - s)
    * core / n; both are equal at s = core / (core + n * engine). The engine's cycles
    include the transfers.
    """
    if not calls:
        return {}
    device_map = DeviceMap(module)
    cores = len(module_cores(module))
    cycles = _predicted_cycles(module, calls, predict)
    shares: dict[str, tuple[OffloadShare, ...]] = {}
    for item, (engine, core) in zip(calls, cycles, strict=True):
        for value in (*item.call.variables, *item.call.outputs):
            size_bytes = value.type.size_bytes
            engine += device_map.transfer_cycles(item.target, size_bytes, dma)
        percent = round(100 * core / (core + engine * cores))
        own = OffloadShare(item.target, percent)
        shares[item.call.outputs[0].name] = (own,)
    return shares


def _predicted_cycles(
    module: IRModule, calls: Sequence[_EngineCall], predict: CallCycles
) -> list[tuple[int, int]]:
    """Return the cycles of each call on its accelerator and on a core.

    The prediction is that of a function in which each call is followed by its operator.
    """
    body: list[Call] = []
    for item in calls:
        for call in (item.call, item.inner):
            output = replace(call.outputs[0], name=f"part{len(body)}")
            body.append(replace(call, outputs=(output,)))
    params: dict[str, Value] = {}
    for call in body:
        for value in call.variables:
            params[value.name] = value
    results = tuple(call.outputs[0] for call in body)
    alone = Function(module.entry.name, tuple(params.values()), tuple(body), results)
    cycles = predict(module.with_function(alone))
    return list(zip(cycles[::2], cycles[1::2], strict=True))


def _split(
    module: IRModule,
    item: _EngineCall,
    splitter: CallSplitter,
    shares: Sequence[OffloadShare],
) -> tuple[IRModule, Sequence[Call]]:
    """Return the calls that replace a call, none if it cannot be divided."""
    first = shares[0].percent
    if len(shares) == 1 and first in (0, 100):
        return module, [item.call if first else item.inner]
    # The weights are proportional: each core has an equal part of the rest of 100 %.
    cores = module_cores(module)
    weights: list[tuple[str, int]] = []
    for share in shares:
        is_known = share.target in module.targets
        device = engine_device(module, share.target) if is_known else ""
        if not device:
            return module, []
        weights.append((device, share.percent * len(cores)))
    rest = 100 - sum(share.percent for share in shares)
    if rest:
        weights += [(core, rest) for core in cores]
    parts = splitter.split(item.inner, weights)
    if parts is None:
        return module, []
    on_engines: list[Call] = []
    outward: list[Call] = []
    values: list[Value] = []
    for share, part in zip(shares, parts, strict=False):
        region = _region_on(module, item, part.call, share.target)
        if region is None:
            return module, []
        module = module.with_function(region)
        inside, following = calls_of_part(part, region, splitter)
        on_engines += inside
        outward += following
        values += (following or inside)[-1].outputs
    on_cores: list[Call] = []
    for part in parts[len(shares) :]:
        on_cores += [*part.slices, part.call]
        values.append(part.output)
    whole = concatenate_parts(item.inner, values, parts[0].axis)
    # Copies out of private memory wait for the engines: they follow the cores' work.
    return module, [*on_engines, *on_cores, *outward, whole]


def _region_on(
    module: IRModule, item: _EngineCall, part: Call, target: str
) -> Function | None:
    """Return the region of a part on a target, or None if no pattern of it takes it."""
    region = region_of_part(module.callee(item.call.op), part)
    active = [backend for backend in active_backends(module) if backend.name == target]
    entries: list[str] = []
    for match in all_matches(region, module, active):
        entries += [covered.entry for covered in match.entries]
    composite = str(region.attrs.get("composite", ""))
    if target == item.target:
        return region if composite in entries else None
    if not entries:
        return None
    name = UniqueNamer(module.functions).unique(f"{target}_{part.op}_0")
    attrs = {
        **region.attrs,
        "target": target,
        "symbol": to_c_identifier(f"{module.name}_{name}"),
        "composite": composite if composite in entries else entries[0],
    }
    return replace(region, name=name, attrs=attrs)


def operator_of(region: AnyFunction | None, call: Call) -> Call | None:
    """Return the only operator of a region on the values of its call, or None."""
    if not isinstance(region, Function):
        return None
    if len(region.body) != 1 or len(call.outputs) != 1:
        return None
    (inner,) = region.body
    arguments: dict[str, Value | None] = {}
    for param, value in zip(region.params, call.inputs, strict=True):
        arguments[param.name] = value
    inputs: list[Value | None] = []
    for value in inner.inputs:
        inputs.append(None if value is None else arguments.get(value.name, value))
    return replace(inner, inputs=tuple(inputs), outputs=call.outputs, span=call.span)


def region_of_part(region: AnyFunction | None, part: Call) -> Function:
    """Return a region like `region` whose only operator is `part`."""
    assert isinstance(region, Function)
    params = tuple(dict.fromkeys(part.variables))
    outputs: list[Value] = []
    for value in part.outputs:
        outputs.append(replace(value, virtual_device=UNCONSTRAINED))
    results = tuple(outputs)
    body = (replace(part, outputs=results),)
    return replace(region, params=params, body=body, results=results)


def calls_of_part(
    part: CallSlice, region: Function, splitter: CallSplitter
) -> tuple[list[Call], list[Call]]:
    """Return the calls that compute a part, and its copy from private memory."""
    call = Call(
        f"@{region.name}", region.params, part.call.outputs, NO_ATTRS, part.call.span
    )
    if not DeviceMap(splitter.module).private_pools(target_of(region)):
        return [*part.slices, call], []
    inward = [splitter.copy(value, call.span, outward=False) for value in region.params]
    call = replace(call, inputs=tuple(copy.outputs[0] for copy in inward))
    outward = splitter.copy(part.output, call.span, outward=True)
    return [*part.slices, *inward, call], [outward]


TILE_BYTES_MIN = 1024
"""Minimum bytes that a tile transfers in and out, since a transfer's start costs."""


def insert_tile_transfers(module: IRModule, ops: OpTable) -> IRModule:
    """Return the module with accelerators' calls on private memory in tiles."""
    has_private_pool = any(pool.targets for pool in module.pools)
    if not module.graphs or not has_private_pool or module.results.pipelined_runs:
        return module
    module = with_unique_names(module)
    domains = MemoryDomains(module, ops, DeviceMap(module))
    domains.join_results()
    made: set[tuple[_Engine | None, str]] = set()
    read: set[tuple[_Engine | None, str]] = set()
    for call in domains.calls:
        engine = _engine(domains.device_map, call)
        for value in call.outputs:
            made.add((engine, domains.root(value.name)))
        for value in call.variables:
            read.add((engine, domains.root(value.name)))
    splitter = CallSplitter(module, ops)
    tiling = _TileTransferBuilder(module, splitter, domains, made, read)
    for graph in module.graphs:
        body: list[Call] = []
        for call in graph.body:
            body += tiling.tile(call)
        tiling.module = tiling.module.with_function(replace(graph, body=tuple(body)))
    return tiling.module


@dataclass(frozen=True, slots=True)
class _Engine:
    """The target that executes a call, its device, and the maximum number of tiles."""

    target: str
    device: str
    tiles: int


def _engine(device_map: DeviceMap, call: Call) -> _Engine | None:
    """Return the engine that executes `call`, or None if it does not work in tiles.

    It must have private pools and see no others, work concurrently with the core, and
    permit more than one tile.
    """
    match = device_map.backend_for(call)
    if match is None or not device_map.private_pools(match[0]):
        return None
    name, backend = match
    if not backend.device or backend.tiles < 2 or backend.visible_pools:
        return None
    return _Engine(name, engine_device(device_map.module, name), backend.tiles)


def _placed_domains(module: IRModule, domains: MemoryDomains) -> frozenset[str]:
    """Return the roots of the domains with a value in a pool of the user's choice.

    A loop variable follows its initial value. The calls of a graph come after those
    that run it.
    """
    placed: set[str] = set()
    for graph in module.graphs:
        for value in graph.values:
            if value.virtual_device.memory_scope:
                placed.add(domains.root(value.name))
    for call in domains.calls:
        if call.op == "while":
            for initial, variable in zip(call.inputs, call.outputs, strict=False):
                if initial is not None and domains.root(initial.name) in placed:
                    placed.add(domains.root(variable.name))
    return frozenset(placed)


@dataclass
class _TileTransferBuilder:
    """Replaces calls by tiles whose transfers overlap with computation.

    copies in     1  2  3
    engine           1  2  3
    copies out          1  2  3
    """

    module: IRModule
    splitter: CallSplitter
    domains: MemoryDomains
    made: Set[tuple[_Engine | None, str]]
    """The engines that make a value of a memory domain, with the domain's root."""
    read: Set[tuple[_Engine | None, str]]
    """The engines that read a value of a memory domain, with the domain's root."""
    functions: UniqueNamer = field(init=False)
    placed: frozenset[str] = field(init=False)
    """The roots of the memory domains in a pool of the user's choice."""

    def __post_init__(self) -> None:
        self.functions = UniqueNamer(self.module.functions)
        self.placed = _placed_domains(self.module, self.domains)

    def tile(self, call: Call) -> Sequence[Call]:
        """Return the calls of the tiles, or the call itself if it stays whole."""
        engine = _engine(self.domains.device_map, call)
        region = self.module.callee(call.op)
        inner = operator_of(region, call)
        if engine is None or inner is None or len(call.inputs) != 1:
            return [call]
        if not self._crosses_memories(call, engine):
            return [call]
        parts = self._parts(inner, engine)
        return [call] if parts is None else self._pipeline(call, region, parts)

    def _crosses_memories(self, call: Call, engine: _Engine) -> bool:
        """Return whether input and output cross memories and are not user-placed."""
        (x,), (y,) = call.inputs, call.outputs
        if x is None or not self.splitter.placed.isdisjoint({x.name, y.name}):
            return False
        roots = self.domains.root(x.name), self.domains.root(y.name)
        if not self.placed.isdisjoint(roots):
            return False
        is_input_inside = (engine, roots[0]) in self.made
        is_output_inside = (engine, roots[1]) in self.read
        return not is_input_inside and not is_output_inside

    def _parts(self, inner: Call, engine: _Engine) -> tuple[CallSlice, ...] | None:
        """Return equal tiles of an operator, or None if they are impossible or small.

        A part of a fully connected layer needs the whole input, so that its tiles save
        nothing.
        """
        moved = 0
        for value in (*inner.variables, *inner.outputs):
            moved += value.type.size_bytes
        count = min(engine.tiles, moved // TILE_BYTES_MIN)
        if len(inner.variables) != 1 or inner.op == "fully_connected" or count < 2:
            return None
        return self.splitter.split(inner, ((engine.device, 1),) * count)

    def _pipeline(
        self, call: Call, region: AnyFunction | None, parts: Sequence[CallSlice]
    ) -> list[Call]:
        """Return the tiles' calls; a tile's copy out follows the next tile's start."""
        body: list[Call] = []
        outward: list[Call] = []
        tiles: list[Value] = []
        for part in parts:
            tile = self._add_tile(region, part.call)
            on_engine, following = calls_of_part(part, tile, self.splitter)
            body += [*on_engine, *outward]
            outward = following
            tiles += outward[0].outputs
        return [*body, *outward, concatenate_parts(call, tiles)]

    def _add_tile(self, region: AnyFunction | None, part: Call) -> Function:
        """Add the function of a tile to the module; name and symbol get one suffix."""
        tile = region_of_part(region, part)
        name = self.functions.unique(tile.name)
        suffix = name[len(tile.name) :]
        symbol = f"{tile.attrs['symbol']}{suffix}"
        tile = replace(tile, name=name, attrs={**tile.attrs, "symbol": symbol})
        self.module = self.module.with_function(tile)
        return tile
