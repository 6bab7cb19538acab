"""Pipelining: a run computes its own first stage and the second of the run before.

    run             1          2          3
    first stage     input 1    input 2    input 3
    second stage               input 1    input 2

Tensors between the stages become state, so that both inputs have memory. The stages of
one run are independent of each other: list scheduling interleaves their calls on the
core and the engines.
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
    for call in entry.body:
        if module.graphs_of(call):
            what = f"the model has control flow or functions ({call.op})"
            raise _refusal(module, what)
    devices = [_device(DeviceMap(module), call) for call in entry.body]
    if not set(devices) - {MAIN_DEVICE}:
        what = (
            "no call is assigned to an accelerator that works concurrently with the "
            "core"
        )
        hint = "--target with such an accelerator, for example vanilla."
        raise _refusal(module, what, hint)
    calls = tuple(map(_TimedCall, entry.body, devices, predict(module)))
    cuts = _cuts(entry)
    if not cuts:
        raise _refusal(module, "an input or a result is used throughout the model")

    def cost(cut: int) -> tuple[int, int]:
        """Return the cycles of a run and the bytes of the new state."""
        cycles, _ = _interleave((calls[cut:], calls[:cut]))
        return cycles, sum(value.type.size_bytes for value in cuts[cut])

    cut = min(cuts, key=cost)
    return _in_stages(module, entry, calls, cut, cuts[cut])


def _refusal(module: IRModule, what: str, hint: str = "") -> UsageError:
    return UsageError(
        f"{OPTION} is not possible: {what}.",
        where=module.name,
        hint=hint or f"omit {OPTION}.",
    )


@dataclass(frozen=True, slots=True)
class _TimedCall:
    """A call with the device that executes it and its predicted cycles."""

    call: Call
    device: str
    cycles: int


def _device(device_map: DeviceMap, call: Call) -> str:
    assigned = device_name(call.outputs[0].virtual_device) if call.outputs else ""
    return assigned or device_map.device_for(call).device


def _cuts(entry: Function) -> dict[int, tuple[Value, ...]]:
    """Return the tensors across each cut, unless inputs or results cross it.

    A cut is the number of calls in the first stage. The first stage must have the last
    reader of each input, and the second stage must make each result.
    """
    makers = entry.makers
    last_readers: dict[str, int] = {}
    for index, call in enumerate(entry.body):
        for value in call.variables:
            last_readers[value.name] = index
    begin = 1
    for value in entry.params:
        begin = max(begin, last_readers.get(value.name, 0) + 1)
    end = min(makers.get(value.name, 0) for value in entry.results)

    def crosses(value: Value, cut: int) -> bool:
        return makers[value.name] < cut <= last_readers.get(value.name, 0)

    values: list[Value] = []
    for call in entry.body:
        values += call.outputs
    cuts: dict[int, tuple[Value, ...]] = {}
    for cut in range(begin, end + 1):
        cuts[cut] = tuple(value for value in values if crosses(value, cut))
    return cuts


def _interleave(stages: Sequence[Sequence[_TimedCall]]) -> tuple[int, tuple[Call, ...]]:
    """Return the cycles of a run and its order; calls that can start first come first.

    The calls of a stage keep their order. Of two calls that can start in the same
    cycle, that of an accelerator is first, so that the core works while the accelerator
    does.
    """
    queues = [list(reversed(stage)) for stage in stages]
    # When each tensor of a stage is complete, and from when each device is free.
    ends = [Counter[str]() for _ in stages]
    free: Counter[str] = Counter()
    body: list[Call] = []

    def start(number: int) -> tuple[int, bool]:
        """Return when a stage's next call can start, and whether the core runs it."""
        item = queues[number][-1]
        ready = 0
        for value in item.call.variables:
            ready = max(ready, ends[number][value.name])
        return max(free[item.device], ready), item.device == MAIN_DEVICE

    while any(queues):
        waiting = [number for number, queue in enumerate(queues) if queue]
        number = min(waiting, key=start)
        cycle, _ = start(number)
        item = queues[number].pop()
        end = cycle + item.cycles
        free[item.device] = end
        for value in item.call.outputs:
            ends[number][value.name] = end
        body.append(item.call)
    return max(free.values()), tuple(body)


def _in_stages(
    module: IRModule,
    entry: Function,
    calls: Sequence[_TimedCall],
    cut: int,
    crossing: Sequence[Value],
) -> IRModule:
    """Return the module with the calls after the cut before those of its first stage.

    Each tensor across the cut becomes a state, zero at first, which the second stage
    reads.
    """
    taken = [value.name for value in entry.values]
    names = UniqueNamer((*taken, *module.constants))
    state: list[State] = []
    previous_values: dict[str, Value] = {}
    constants = dict(module.constants)
    for value in crossing:
        initial = names.unique(f"{value.name}_initial")
        zeros = np.zeros(value.shape, value.type.dtype.np)
        constants[initial] = Constant.from_array(initial, zeros, value.type.dtype)
        previous = replace(value, name=names.unique(f"{value.name}_previous"))
        previous_values[value.name] = previous
        state.append(State(previous, value, initial))
    second: list[_TimedCall] = []
    for item in calls[cut:]:
        call = with_inputs_renamed(item.call, previous_values)
        second.append(replace(item, call=call))
    _, body = _interleave((second, calls[:cut]))
    entry = replace(entry, body=body, state=tuple(state))
    module = replace(module.with_function(entry), constants=constants)
    return replace(module, results=replace(module.results, pipelined_runs=1))
