"""The modeled schedule of a run on several devices: when each call begins and ends.

Each device executes its calls in the order of their starts. The times of emulated
transfers come from the board file. Transfers in flight share the bandwidth; a start on
a busy channel waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from math import ceil

from firmwright.base.errors import InternalError
from firmwright.ir import tir
from firmwright.ir.core import PoolInfo
from firmwright.ir.graph.devices import CYCLES_ATTR, is_copy_device
from firmwright.ir.module import IRModule
from firmwright.ir.tir.memory_effects import MemoryEffectAnalysis, find_conflict
from firmwright.ir.tir.traversal import prim_calls
from firmwright.partitioning.target_resolution import CORE_TARGET_NAME, target_of
from firmwright.pipeline import Compilation


@dataclass(frozen=True, slots=True)
class ScheduledCall:
    """A call in time."""

    call: tir.PrimFuncCall
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class ModeledTime:
    """Cycles of a call, of which `bus` share the bandwidth with other transfers."""

    cycles: int
    bus: int = 0


ModeledTimes = Mapping[int, ModeledTime]
"""By operator."""


def operator_devices(module: IRModule) -> dict[int, str]:
    """Return each operator's devices; targets without a device have their own names."""
    names: dict[int, dict[str, None]] = {}
    for call in prim_calls(module.aot_main.body):
        if call.op >= 0:
            target = target_of(module.functions[call.callee]) or CORE_TARGET_NAME
            names.setdefault(call.op, {})[call.device or target] = None
    return {op: " and ".join(devices) for op, devices in names.items()}


def modeled_times(compiled: Compilation) -> dict[int, ModeledTime]:
    """Return the times of emulated transfers, and of backends that declare them."""
    module, dma = compiled.module, compiled.board.dma
    if compiled.board.counter.unit != "instructions":
        return {}
    analysis = MemoryEffectAnalysis(module.aot_main, module.functions)
    pools = {pool.name: pool for pool in module.pools}
    times: dict[int, ModeledTime] = {}
    for call in prim_calls(module.aot_main.body):
        kernel = module.kernel(call.callee)
        if is_copy_device(call.device) and dma is not None:
            source, target = analysis.effects_of(call)
            source_pool = pools.get(source.root, PoolInfo(source.root))
            target_pool = pools.get(target.root, PoolInfo(target.root))
            bus = dma.bus_cycles(source.end - source.first, source_pool, target_pool)
            times[call.op] = ModeledTime(dma.setup + bus, bus)
        elif CYCLES_ATTR in kernel.attrs:
            times[call.op] = ModeledTime(int(str(kernel.attrs[CYCLES_ATTR])))
    return times


def schedule_run(
    module: IRModule, counts: Mapping[int, int], modeled: ModeledTimes
) -> tuple[ScheduledCall, ...]:
    """Schedule calls with these counts; the iterations of a loop count once."""
    schedule = RunSchedule(modeled)
    left = dict(counts)
    for call in prim_calls(module.aot_main.body):
        if call.op in counts:
            schedule.add(call, left[call.op])
            if call.phase == "call":
                left[call.op] = 0
    return tuple(schedule.calls)


def parallel_calls(
    schedule: Sequence[ScheduledCall],
) -> Iterator[tuple[ScheduledCall, ScheduledCall]]:
    """Yield pairs of calls that overlap in time, the earlier one first."""
    for a, b in combinations(sorted(schedule, key=lambda item: item.begin), 2):
        if b.begin < a.end and a.call.device != b.call.device:
            yield a, b


def check_races(module: IRModule, schedule: Sequence[ScheduledCall]) -> None:
    """Raise InternalError if parallel calls conflict in their memory."""
    main = module.aot_main
    analysis = MemoryEffectAnalysis(main, module.functions)
    for a, b in parallel_calls(schedule):
        effect = find_conflict(analysis.effects_of(a.call), analysis.effects_of(b.call))
        if effect is not None:
            verb = "writes" if effect.written else "reads"
            raise InternalError(
                f"in the trace, operator {b.call.op} {verb} {effect.root} "
                f"[{effect.first}, {effect.end}) at {b.begin}, but operator "
                f"{a.call.op} on {a.call.device or 'the main core'} uses it until "
                f"{a.end}."
            )


@dataclass(slots=True)
class _Transfer:
    """A transfer in flight: it moves data from cycle `ready`, `left` are bus cycles."""

    call: tir.PrimFuncCall
    begin: int
    ready: int
    left: Fraction
    end: int = 0


@dataclass
class RunSchedule:
    """Calls placed in the order of the main; `now` is the main core's time."""

    modeled: ModeledTimes
    now: int = 0
    calls: list[ScheduledCall] = field(default_factory=list)
    _free: dict[str, int] = field(default_factory=dict)
    """The cycle from which each device has no work."""
    _open: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """The begin and end of the calls in flight, by device and operator."""
    _transfers: dict[str, _Transfer] = field(default_factory=dict)
    """The emulated transfers in flight, by device."""
    _time: Fraction = Fraction(0)
    """The time up to which the transfers were advanced."""

    def add(self, call: tir.PrimFuncCall, count: int) -> None:
        """Add the next step of the main, with its measured count."""
        time = self.modeled.get(call.op, ModeledTime(count))
        if time.bus and call.phase == "start":
            # The channel is busy until its earlier transfer ends.
            self._finish(call.device)
            self._advance(self.now)
            ready = self.now + time.cycles - time.bus
            left = Fraction(time.bus)
            self._transfers[call.device] = _Transfer(call, self.now, ready, left)
        elif time.bus and call.phase == "wait":
            self._finish(call.device)
        elif call.phase == "call":
            self._record(call, self.now, self.now + time.cycles)
            self.now += time.cycles
        elif call.phase == "start":
            begin = max(self.now, self._free.get(call.device, 0))
            self._free[call.device] = begin + time.cycles
            self._open[call.device, call.op] = (begin, begin + time.cycles)
        else:
            begin, end = self._open.pop((call.device, call.op))
            # A measured transfer lasts until its wait.
            end = max(self.now, end) if is_copy_device(call.device) else end
            self._record(call, begin, end)
            self.now = max(self.now, end)

    def _record(self, call: tir.PrimFuncCall, begin: int, end: int) -> None:
        if end > begin:
            self.calls.append(ScheduledCall(call, begin, end))

    def _finish(self, device: str) -> None:
        """Let the main core wait for the end of a device's transfer."""
        transfer = self._transfers.get(device)
        if transfer is not None:
            self._advance(self.now)
            self._advance(None, transfer)
            del self._transfers[device]
            self._record(transfer.call, transfer.begin, transfer.end)
            self.now = max(self.now, transfer.end)

    def _advance(self, until: int | None, awaited: _Transfer | None = None) -> None:
        """Continue the transfers until a time or the end of one.

        Between two events, n transfers on the bus each proceed at 1/n of its speed. An
        event is the start of another transfer on the bus, or the end of one. The times
        are exact fractions.
        """
        while awaited is None or awaited.left:
            if until is not None and self._time >= until:
                return
            on_bus: list[_Transfer] = []
            events: list[Fraction] = []
            for item in self._transfers.values():
                if item.left and item.ready <= self._time:
                    on_bus.append(item)
                elif item.left:
                    events.append(Fraction(item.ready))
            for item in on_bus:
                events.append(self._time + item.left * len(on_bus))
            if until is not None:
                events.append(Fraction(until))
            step = min(events) - self._time
            self._time += step
            for item in on_bus:
                item.left -= step / len(on_bus)
                item.end = ceil(self._time)
