"""Pipelining over runs: a run computes the second stage of the run before and its own first stage.

Tensors between the stages become state, so both runs have memory. List scheduling interleaves the
stages, which are independent.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.base.errors import UsageError
from firmwright.ir.core import Constant
from firmwright.ir.graph.devices import MAIN_DEVICE, device_name
from firmwright.ir.graph.nodes import Call, Function, State, Value
from firmwright.ir.module import IRModule
from firmwright.partitioning.device_map import DeviceMap
from firmwright.partitioning.engine_instances import listed_engines
from firmwright.passes.graph.rematerialize import with_inputs_renamed

OPTION = "--pipeline-runs"
CallCycles = Callable[[IRModule], Sequence[int]]
"""Predicts the cycles of each call of the entry."""


def pipeline_runs(module: IRModule, predict: CallCycles) -> IRModule:
    """Return the module in two stages if its setting `pipeline_runs` is on."""
    if not module.settings.pipeline_runs:
        return module
    entry = module.entry
    if not isinstance(entry, Function):
        raise _refusal(module, "the module is lowered", "start from the model file.")
    if entry.state:
        names = ", ".join(state.value.name for state in entry.state)
        raise _refusal(module, f"the model keeps state between runs ({names})")
    if listed_engines(module) or module.results.offload_shares:
        raise _refusal(module, "operators are split over core and accelerator")
    inlined = next((call for call in entry.body if module.graphs_of(call)), None)
    if inlined is not None:
        raise _refusal(module, f"the model has control flow or functions ({inlined.op})")
    devices = [_device(DeviceMap(module), call) for call in entry.body]
    if not set(devices) - {MAIN_DEVICE}:
        what = "no call is assigned to an accelerator that works concurrently with the core"
        raise _refusal(module, what, "--target with such an accelerator, for example vanilla.")
    calls = tuple(map(_TimedCall, entry.body, devices, predict(module)))
    cuts = _cuts(entry)
    if not cuts:
        raise _refusal(module, "an input or a result is used throughout the model")

    def cost(cut: int) -> tuple[int, int]:
        cycles, _ = _interleave((calls[cut:], calls[:cut]))
        return cycles, sum(value.type.size_bytes for value in cuts[cut])

    cut = min(cuts, key=cost)
    return _in_stages(module, entry, calls, cut, cuts[cut])


def _refusal(module: IRModule, what: str, hint: str = "") -> UsageError:
    return UsageError(
        f"{OPTION} is not possible: {what}.", where=module.name, hint=hint or f"omit {OPTION}."
    )


@dataclass(frozen=True, slots=True)
class _TimedCall:
    call: Call
    device: str
    cycles: int


def _device(device_map: DeviceMap, call: Call) -> str:
    assigned = device_name(call.outputs[0].virtual_device) if call.outputs else ""
    return assigned or device_map.device_for(call).device


def _cuts(entry: Function) -> dict[int, tuple[Value, ...]]:
    """Return the tensors across each cut, unless inputs or results cross it."""
    makers = {v.name: at for at, call in enumerate(entry.body) for v in call.outputs}
    last = {v.name: at for at, call in enumerate(entry.body) for v in call.variables}
    values = [v for call in entry.body for v in call.outputs]
    begin = max((last.get(v.name, 0) + 1 for v in entry.params), default=1)
    end = min(makers.get(v.name, 0) for v in entry.results)
    return {
        cut: tuple(v for v in values if makers[v.name] < cut <= last.get(v.name, 0))
        for cut in range(begin, end + 1)
    }


def _interleave(stages: Sequence[Sequence[_TimedCall]]) -> tuple[int, tuple[Call, ...]]:
    """Return the cycles of a run and its order; calls that can start first come first."""
    queues = [list(reversed(stage)) for stage in stages]
    ends = [Counter[str]() for _ in stages]
    free: Counter[str] = Counter()
    body: list[Call] = []

    def start(number: int) -> tuple[int, bool]:
        item = queues[number][-1]
        ready = max((ends[number][value.name] for value in item.call.variables), default=0)
        return max(free[item.device], ready), item.device == MAIN_DEVICE

    while any(queues):
        number = min((n for n, queue in enumerate(queues) if queue), key=start)
        end = start(number)[0] + queues[number][-1].cycles
        item = queues[number].pop()
        free[item.device] = end
        ends[number].update({value.name: end for value in item.call.outputs})
        body.append(item.call)
    return max(free.values()), tuple(body)


def _in_stages(
    module: IRModule,
    entry: Function,
    calls: Sequence[_TimedCall],
    cut: int,
    crossing: Sequence[Value],
) -> IRModule:
    names = UniqueNamer((*(value.name for value in entry.values), *module.constants))
    state, constants = [], dict(module.constants)
    for value in crossing:
        kind, name = value.type, names.unique(f"{value.name}_initial")
        zeros = np.zeros(kind.shape, kind.dtype.np)
        constants[name] = Constant.from_array(name, zeros, kind.dtype)
        previous = replace(value, name=names.unique(f"{value.name}_previous"))
        state.append(State(previous, value, name))
    swapped = {item.next.name: item.value for item in state}
    second = [replace(item, call=with_inputs_renamed(item.call, swapped)) for item in calls[cut:]]
    _, body = _interleave((second, calls[:cut]))
    module = replace(
        module.with_function(replace(entry, body=body, state=tuple(state))), constants=constants
    )
    return replace(module, results=replace(module.results, pipelined_runs=1))
