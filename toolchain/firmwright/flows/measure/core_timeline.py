"""The timeline of a run on several devices, with counted and modeled times.

An emulator executes one core at a time, and the software model of an engine where it is
started. The schedule is therefore modeled (flows/predict/run_schedule.py): the main
core and each device proceed on their own, with the counted instructions of their calls,
or the cycles that the board file and the backends declare. A cycle counts as an
instruction. Polling does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from firmwright.artifacts import Image, SymbolSize
from firmwright.base.errors import UsageError
from firmwright.codegen.function_printer import without_constant_copies
from firmwright.device.instruction_counter import FunctionEntry
from firmwright.flows.predict import run_schedule
from firmwright.flows.predict.run_schedule import (
    ModeledTime,
    ModeledTimes,
    RunSchedule,
    ScheduledCall,
)
from firmwright.ir import tir
from firmwright.ir.graph.devices import is_copy_device, is_core
from firmwright.ir.module import IRModule
from firmwright.ir.tir.traversal import Node, children, prim_calls
from firmwright.partitioning.backend_libraries import find_waits, module_backends
from firmwright.partitioning.engine_instances import engine_device
from firmwright.pipeline import Compilation
from firmwright.report.model import ParallelRun
from firmwright.targets.backend import Backend

_DEVICE_FUNCTIONS = {"start": "start_", "wait": "wait_for_"}
"""The beginnings of the names of C functions that start and await calls, by phase."""
_SECOND_CORE_LOOP = "core_main"
"""The function of the second core that waits for calls."""


@dataclass(frozen=True, slots=True)
class CountedTime:
    """The instructions of an operator on the main core, and their time."""

    instructions: int
    duration: int


@dataclass(frozen=True, slots=True)
class CoreCounts:
    """The counts of the main core, by operator and between operators.

    `unit` is that of the durations.
    """

    operators: Mapping[int, CountedTime]
    between: CountedTime
    unit: str

    @property
    def instructions(self) -> int:
        within = sum(item.instructions for item in self.operators.values())
        return within + self.between.instructions


@dataclass(frozen=True, slots=True)
class CoreTimeline:
    """The modeled schedule of a run, and the instructions of each core outside waits.

    `elsewhere` has the instructions of the second core and of software models, by
    operator.
    """

    schedule: tuple[ScheduledCall, ...]
    parallel: ParallelRun
    executed: tuple[int, ...]
    elsewhere: Mapping[int, int] = field(default_factory=dict)

    @property
    def makespan(self) -> int:
        return self.parallel.makespan


def has_timeline(compiled: Compilation) -> bool:
    """Return whether a run of the model has asynchronous calls or declared times."""
    if run_schedule.modeled_times(compiled):
        return True
    return bool(_started_devices(compiled.module))


def has_declared_times(compiled: Compilation) -> bool:
    """Return whether the times of all calls on other devices are declared."""
    times = run_schedule.modeled_times(compiled)
    calls = prim_calls(compiled.module.aot_main.body)
    return all(call.op in times for call in calls if call.phase == "start")


def traced_functions(compiled: Compilation, image: Image) -> tuple[SymbolSize, ...]:
    """Return the functions to trace; UsageError if calls cannot be distinguished."""
    module = compiled.module
    apart = {engine_device(module, name) for name, _ in _emulating_backends(module)}
    engines = [device for device in find_waits(module) if device not in apart]
    if engines:
        what = (
            f"the instructions of the model of {', '.join(engines)} cannot be counted "
            "apart."
        )
        hint = "use profile without --count-instructions, and no --partition collage."
        raise UsageError(what, where=module.name, hint=hint)
    names = {f"{compiled.c_prefix}_run", _SECOND_CORE_LOOP}
    for call in prim_calls(module.aot_main.body):
        if call.device:
            names |= {f"{stem}{call.device}" for stem in _DEVICE_FUNCTIONS.values()}
            names.add(f"{compiled.c_prefix}_on_{call.device}")
        else:
            names.add(f"{compiled.c_prefix}_{module.kernel(call.callee).code}")
    traced: list[SymbolSize] = []
    for symbol in image.sizes.symbols:
        # A compiler's copy of a function has a suffix.
        if symbol.kind == "text" and symbol.name.partition(".")[0] in names:
            traced.append(symbol)
    return tuple(traced)


def software_models(compiled: Compilation) -> frozenset[str]:
    """Return the C functions that emulate devices on the main core."""
    module = compiled.module
    functions = {backend.emulated_by for _, backend in _emulating_backends(module)}
    for device in _modeled_engines(module):
        functions.add(f"{compiled.c_prefix}_on_{device}")
    return frozenset(functions)


def _emulating_backends(module: IRModule) -> list[tuple[str, Backend]]:
    return [item for item in module_backends(module) if item[1].emulated_by]


def _modeled_engines(module: IRModule) -> frozenset[str]:
    """Return the engines whose calls are executed by the main core at their start."""
    others = {*find_waits(module), *module.settings.devices.emulated_engines}
    engines: set[str] = set()
    for device in _started_devices(module):
        if not (is_core(device) or is_copy_device(device) or device in others):
            engines.add(device)
    return frozenset(engines)


def _started_devices(module: IRModule) -> frozenset[str]:
    calls = prim_calls(module.aot_main.body)
    return frozenset(call.device for call in calls if call.phase == "start")


def build_timeline(
    compiled: Compilation,
    functions: Sequence[SymbolSize],
    steps: Sequence[FunctionEntry],
    counts: CoreCounts,
) -> CoreTimeline:
    """Return the timeline of a traced run; UsageError if the trace is of no path."""
    trace = _Trace(compiled, functions, steps)
    path = trace.executed_path()
    starts = [call for call in path or () if call.phase == "start"]
    remote_starts = [call for call in starts if trace.is_on_second_core(call)]
    if path is None or len(trace.remote) != len(remote_starts):
        raise UsageError(
            f"the trace shows {len(trace.visits)} calls on the first core and "
            f"{len(trace.remote)} on the second, which no path of the model makes.",
            where=compiled.module.name,
            hint="use profile without --count-instructions.",
        )
    times = run_schedule.modeled_times(compiled)
    return _TimelineBuilder(trace, path, times, counts).timeline()


@dataclass(frozen=True, slots=True)
class _Visit:
    """Instructions of the main core between two of the AOT main.

    They begin in the function at `address`. `modeled` are the instructions of software
    models, which `instructions` excludes. `before` are those of the AOT main since the
    visit before.
    """

    address: int
    instructions: int
    modeled: int
    before: int


class _Trace:
    """The visits of the main core, and the instructions of each call on the second."""

    def __init__(
        self,
        compiled: Compilation,
        functions: Sequence[SymbolSize],
        steps: Sequence[FunctionEntry],
    ) -> None:
        self.compiled = compiled
        self._engines = _modeled_engines(compiled.module)
        # Of equal functions, only one may remain, with several names.
        self._addresses: dict[str, set[int]] = {}
        for function in functions:
            name = function.name.partition(".")[0]
            self._addresses.setdefault(name, set()).add(function.address)
        self._device_functions: set[int] = set()
        for name, addresses in self._addresses.items():
            if name.startswith(tuple(_DEVICE_FUNCTIONS.values())):
                self._device_functions |= addresses
        self.visits = tuple(self._visits(functions, steps))
        self.remote = tuple(self._remote(functions, steps))

    def _visits(
        self, functions: Sequence[SymbolSize], steps: Sequence[FunctionEntry]
    ) -> Iterator[_Visit]:
        main = self._addresses[f"{self.compiled.c_prefix}_run"]
        address = left = entered = modeled = 0
        for step in steps:
            if step.cpu != 0:
                continue
            now, _, modeled_now = step.executed
            entry = functions[step.function].address
            if entry not in main and not address:
                address, entered, modeled = entry, now, modeled_now
            elif entry in main and address:
                own, before = now - entered, entered - left
                yield _Visit(address, own, modeled_now - modeled, before)
                address, left = 0, now

    def _remote(
        self, functions: Sequence[SymbolSize], steps: Sequence[FunctionEntry]
    ) -> Iterator[int]:
        """Yield the instructions of the second core between its sleeps."""
        begin: int | None = None
        for step in steps:
            if step.cpu != 1:
                continue
            now = step.executed[1]
            if functions[step.function].name != _SECOND_CORE_LOOP:
                begin = now if begin is None else begin
            elif begin is not None:
                yield now - begin
                begin = None

    def executed_path(self) -> tuple[tir.PrimFuncCall, ...] | None:
        module = self.compiled.module
        body = without_constant_copies(module, module.aot_main.body)
        return executed_calls(body, self.visits, self._is_of)

    def _is_of(self, call: tir.PrimFuncCall, visit: _Visit) -> bool:
        if call.phase != "call":
            name = f"{_DEVICE_FUNCTIONS[call.phase]}{call.device}"
            return visit.address in self._addresses.get(name, ())
        if visit.address in self._device_functions:
            return False
        name = (
            f"{self.compiled.c_prefix}_{self.compiled.module.kernel(call.callee).code}"
        )
        return visit.address in self._addresses.get(name, {visit.address})

    def is_on_second_core(self, call: tir.PrimFuncCall) -> bool:
        devices = self.compiled.module.settings.devices
        return is_core(call.device) or call.device in devices.emulated_engines

    def is_modeled(self, call: tir.PrimFuncCall) -> bool:
        """Return whether a software model on the main core executes the call."""
        return call.device in self._engines


class _Scale:
    """Converts consecutive instructions of one origin to their time, without loss."""

    def __init__(self, counted: CountedTime) -> None:
        self._counted = counted
        self._instructions = 0
        self._taken = 0

    def take(self, instructions: int) -> int:
        """Return the time of the next instructions."""
        self._instructions += instructions
        whole = max(1, self._counted.instructions)
        end = round(self._instructions * self._counted.duration / whole)
        taken, self._taken = end - self._taken, end
        return taken

    def rest(self) -> int:
        return max(0, self._counted.duration - self._taken)


class _TimelineBuilder:
    """Places the calls of a path in time."""

    def __init__(
        self,
        trace: _Trace,
        path: Sequence[tir.PrimFuncCall],
        times: ModeledTimes,
        counts: CoreCounts,
    ) -> None:
        self._trace = trace
        self._path = path
        self._times = times
        self._counts = counts
        self._between = _Scale(counts.between)
        self._own = {op: _Scale(item) for op, item in counts.operators.items()}
        self._schedule = RunSchedule(times)
        self._elsewhere: Counter[int] = Counter()
        self._remote = iter(trace.remote)
        waits = [visit for call, visit in self._steps() if self._polls(call)]
        self._least_wait = min((visit.instructions for visit in waits), default=0)
        self._polled = sum(visit.instructions - self._least_wait for visit in waits)

    def timeline(self) -> CoreTimeline:
        schedule = self._schedule
        for call, visit in self._steps():
            schedule.now += self._between.take(visit.before)
            self._add(call, visit)
        schedule.now += self._between.rest()
        executed = [self._counts.instructions - self._polled]
        if self._trace.remote:
            executed.append(sum(self._trace.remote))
        modeled = [time.cycles for time in self._modeled()]
        transfers = sum(time.cycles for time in self._modeled() if time.bus)
        measured = 0
        for op, count in self._elsewhere.items():
            measured += 0 if op in self._times else count
        sequential = self._on_main_core() + measured + sum(modeled)
        run = ParallelRun(schedule.now, sequential, transfers, self._counts.unit)
        calls = tuple(schedule.calls)
        return CoreTimeline(calls, run, tuple(executed), self._elsewhere)

    def _steps(self) -> Iterator[tuple[tir.PrimFuncCall, _Visit]]:
        yield from zip(self._path, self._trace.visits, strict=True)

    def _polls(self, call: tir.PrimFuncCall) -> bool:
        return call.phase == "wait" and self._trace.is_on_second_core(call)

    def _add(self, call: tir.PrimFuncCall, visit: _Visit) -> None:
        """Add a call; the main core's work for other devices is between calls."""
        schedule = self._schedule
        if call.phase == "call":
            own = self._own.get(call.op, self._between)
            schedule.add(call, own.take(visit.instructions))
            return
        time = self._between.take(visit.instructions)
        if call.phase == "wait":
            schedule.add(call, 0)
            schedule.now += self._least_wait if self._polls(call) else time
            return
        schedule.now += time
        schedule.add(call, self._count_elsewhere(call, visit))

    def _count_elsewhere(self, call: tir.PrimFuncCall, visit: _Visit) -> int:
        """Return the instructions of a call's start on another device."""
        if self._trace.is_on_second_core(call):
            count = next(self._remote)
        elif self._trace.is_modeled(call):
            count = visit.modeled
        else:
            return visit.instructions if is_copy_device(call.device) else 0
        self._elsewhere[call.op] += count
        return count

    def _modeled(self) -> Iterator[ModeledTime]:
        """Yield the declared times of the executed calls."""
        for call in self._path:
            if call.phase != "wait" and call.op in self._times:
                yield self._times[call.op]

    def _on_main_core(self) -> int:
        """Return the time of the main core without waits and declared calls."""
        total = self._counts.between.duration - self._polled
        for op, item in self._counts.operators.items():
            total += 0 if op in self._times else item.duration
        return total


_Event = TypeVar("_Event")
_Rest = tuple[Node, "_Rest"] | None
"""The nodes that follow, the next one first."""
_Path = tuple[tir.PrimFuncCall, ...]


def executed_calls(
    body: tir.Stmt,
    events: Iterable[_Event],
    is_event: Callable[[tir.PrimFuncCall, _Event], bool],
) -> _Path | None:
    """Return the calls of the first path that causes these events, or None."""
    states: list[tuple[_Path, _Rest]] = [((), (body, None))]
    for event in events:
        following: dict[tuple[int, int], tuple[_Path, _Rest]] = {}
        for path, rest in states:
            for call, after in _next_calls(rest):
                if call is not None and is_event(call, event):
                    key = (id(call), id(after and after[0]))
                    following.setdefault(key, ((*path, call), after))
        states = list(following.values())
    for path, rest in states:
        if (None, None) in _next_calls(rest):
            return path
    return None


def _next_calls(rest: _Rest) -> Iterator[tuple[tir.PrimFuncCall | None, _Rest]]:
    """Yield each call that can be next, None for the end, with the nodes after it."""
    open_paths, loops = [rest], set[int]()
    while open_paths:
        match rest := open_paths.pop():
            case None:
                yield None, None
            case (tir.PrimFuncCall() as call, after):
                yield call, after
            case (tir.If(then=then, orelse=orelse), after):
                open_paths += [(orelse, after) if orelse else after, (then, after)]
            case (tir.For(body=body) | tir.While(body=body) as loop, after):
                open_paths += [after] if id(loop) in loops else [after, (body, rest)]
                loops.add(id(loop))
            case (node, after):
                for child in reversed(tuple(children(node))):
                    after = (child, after)
                open_paths.append(after)
