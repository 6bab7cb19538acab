"""Splitting of the calls of accelerators over the accelerator and the cores.

The parts are predicted to end together, or have the share that the user requests. Calls of which
the accelerator's patterns do not take a part stay whole. Results are bit-identical.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import cast

from firmwright.boards.peripherals import DmaController
from firmwright.ir.graph.devices import make_copy, module_cores
from firmwright.ir.graph.nodes import Call, Function
from firmwright.ir.graph.opdef import OpTable
from firmwright.ir.module import IRModule
from firmwright.partitioning.device_map import DeviceMap
from firmwright.partitioning.engine_instances import engine_device, listed_engines
from firmwright.partitioning.offload import SHARES_ATTR, OffloadRequests, refusal
from firmwright.partitioning.pattern_matching import all_matches
from firmwright.partitioning.regions import operator_of, region_of_part
from firmwright.partitioning.run_pipelining import CallCycles
from firmwright.partitioning.target_resolution import active_backends
from firmwright.passes.graph.assign_pools import with_unique_names
from firmwright.passes.graph.multi_core_split import CallSplitter
from firmwright.passes.graph.row_slicing import concatenate_parts

FindDma = Callable[[], DmaController | None]


def split_over_engines(
    module: IRModule, ops: OpTable, predict: CallCycles, find_dma: FindDma
) -> IRModule:
    """Return the module with calls split; the identical module if none is requested."""
    requests = cast("OffloadRequests", module.attrs.get(SHARES_ATTR, ()))
    listed = listed_engines(module)
    if not requests and not listed:
        return module
    module = with_unique_names(module)
    splitter = CallSplitter(module, ops)
    calls = {item.tensor: item for item in _engine_calls(module)}
    shares = {tensor: int(text.partition(":")[2]) for tensor, text in requests}
    free = [c for name, c in calls.items() if c.device in listed and name not in shares]
    large = [item for item in free if splitter.is_large(item.inner)]
    shares |= _balanced_shares(module, large, predict, find_dma())
    parts: dict[str, Sequence[Call]] = {}
    for item in (calls[tensor] for tensor in shares if tensor in calls):
        module, parts[item.tensor] = _split(module, item, splitter, shares[item.tensor])
    for tensor, text in requests:
        if not parts.get(tensor):
            problem = "it cannot be divided into parts that the target takes"
            if tensor not in calls:
                problem = "the target does not compute it alone and concurrently with the core"
            raise refusal(module, tensor, text, problem)
    for graph in module.graphs:
        split = (
            (call.outputs and parts.get(call.outputs[0].name)) or [call] for call in graph.body
        )
        module = module.with_function(replace(graph, body=tuple(chain.from_iterable(split))))
    return splitter.with_constants(module)


@dataclass(frozen=True, slots=True)
class _EngineCall:
    """A call of a region with one operator; `inner` is this operator on the call's values."""

    call: Call
    inner: Call
    target: str
    device: str

    @property
    def tensor(self) -> str:
        return self.call.outputs[0].name


def _engine_calls(module: IRModule) -> Iterator[_EngineCall]:
    device_map = DeviceMap(module)
    for call in (call for graph in module.graphs for call in graph.body):
        match, inner = device_map.backend_for(call), operator_of(module.callee(call.op), call)
        device = engine_device(module, match[0]) if match else ""
        if match and inner and device:
            yield _EngineCall(call, inner, match[0], device)


def _balanced_shares(
    module: IRModule, calls: Sequence[_EngineCall], predict: CallCycles, dma: DmaController | None
) -> dict[str, int]:
    """Return the percentage of each call for its accelerator with which it ends first."""
    body: list[Call] = []
    for call in (call for item in calls for call in (item.call, item.inner)):
        body.append(replace(call, outputs=(replace(call.outputs[0], name=f"part{len(body)}"),)))
    params = tuple({value.name: value for call in body for value in call.variables}.values())
    results = tuple(call.outputs[0] for call in body)
    alone = Function(module.entry.name, params, tuple(body), results)
    cycles = predict(module.with_function(alone)) if calls else ()
    device_map, cores = DeviceMap(module), len(module_cores(module))

    def end(item: _EngineCall, engine: int, core: int, share: int) -> float:
        read = share if item.inner.op != "fully_connected" else 100 * min(share, 1)
        moved = [value.type.size_bytes * read // 100 for value in item.call.variables]
        moved.append(item.call.outputs[0].type.size_bytes * share // 100)
        sizes = filter(None, moved)
        transfers = sum(device_map.transfer_cycles(item.target, size, dma) for size in sizes)
        return max(engine * share / 100 + transfers, core * (100 - share) / 100 / cores)

    return {
        item.tensor: min(range(101), key=partial(end, item, engine, core))
        for item, engine, core in zip(calls, cycles[::2], cycles[1::2], strict=True)
    }


def _split(
    module: IRModule, item: _EngineCall, splitter: CallSplitter, share: int
) -> tuple[IRModule, Sequence[Call]]:
    """Return the calls that replace a call, none if it cannot be divided."""
    if share in (0, 100):
        return module, [item.call if share else item.inner]
    cores, region = module_cores(module), module.callee(item.call.op)
    shares = [(item.device, share * len(cores)), *((core, 100 - share) for core in cores)]
    parts = splitter.split(item.inner, shares)
    if parts is None or not isinstance(region, Function):
        return module, []
    own, *others = parts
    region = region_of_part(region, own.call)
    if not _is_taken(module, region, item.target):
        return module, []
    inward: list[Call] = []
    outward: list[Call] = []
    if DeviceMap(module).private_pools(item.target):
        names, span = splitter.names, item.call.span
        inward += (make_copy(module, v, names, span, outward=False) for v in region.params)
        outward.append(make_copy(module, own.output, names, span, outward=True))
    arguments = tuple(copy.outputs[0] for copy in inward) or region.params
    on_engine = replace(item.call, inputs=arguments, outputs=own.call.outputs)
    on_cores = (call for part in others for call in (*part.slices, part.call))
    values = [*(outward or [own.call])[0].outputs, *(part.output for part in others)]
    whole = concatenate_parts(item.inner, values, own.axis)
    calls = [*own.slices, *inward, on_engine, *on_cores, *outward, whole]
    return module.with_function(region), calls


def _is_taken(module: IRModule, region: Function, target: str) -> bool:
    active = [backend for backend in active_backends(module) if backend.name == target]
    matches = all_matches(region, module, active)
    return any((region.attrs["composite"], (0,)) in group.entries for group in matches)
