"""The timeline of a run on two cores, with counted instructions and a modeled schedule.

An emulator runs one core at a time, so the schedule is modeled from the instruction
counts and the times of transfers (flows/predict/run_schedule.py), without polling. A
cycle counts as an instruction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from firmwright.artifacts import Image, SymbolSize
from firmwright.base.errors import UsageError
from firmwright.codegen.function_printer import without_constant_copies
from firmwright.device.instruction_counter import FunctionEntry
from firmwright.flows.predict import run_schedule
from firmwright.flows.predict.run_schedule import (
    ModeledTimes,
    RunSchedule,
    ScheduledCall,
)
from firmwright.ir import tir
from firmwright.ir.graph.devices import is_copy_device
from firmwright.ir.module import IRModule
from firmwright.ir.tir.traversal import Node, children, prim_calls
from firmwright.partitioning.backend_libraries import find_waits, module_backends
from firmwright.partitioning.engine_instances import engine_device
from firmwright.pipeline import Compilation
from firmwright.report.model import ParallelRun

_STARTS, _WAITS, _IDLES = "fwr_port_core_start", "fwr_port_core_wait", "core_main"
_CALLS = (_STARTS, _WAITS)
_COPIES = ("fwr_port_copy_start", "fwr_port_copy_wait")
_EVENTS = ("", *_CALLS, *_COPIES)


@dataclass(frozen=True, slots=True)
class CoreTimeline:
    """The modeled schedule of a run and its counts outside waits.

    `second` has the counts of the second core by operator.
    """

    schedule: tuple[ScheduledCall, ...]
    parallel: ParallelRun
    executed: tuple[int, ...]
    second: Mapping[int, int] = field(default_factory=dict)

    @property
    def makespan(self) -> int:
        return self.parallel.makespan


def traced_functions(compiled: Compilation, image: Image) -> tuple[SymbolSize, ...]:
    """Return the functions to trace, () for one device; UsageError if impossible."""
    calls = prim_calls(compiled.module.aot_main.body)
    devices = {call.device for call in calls if call.phase != "call"}
    if devices <= emulators(compiled.module).keys():
        return ()
    if engines := find_waits(compiled.module):
        what = (
            f"the instructions of the model of {', '.join(engines)} cannot be counted "
            "apart."
        )
        hint = "use profile without --count-instructions, and no --partition collage."
        raise UsageError(what, where=compiled.module.name, hint=hint)
    if compiled.board.cores is None:
        what = "exact counts of calls on accelerators need a board with two cores."
        hint = "use --board mps2-an521, or profile without --count-instructions."
        raise UsageError(what, where=compiled.board.name, hint=hint)
    model = f"{compiled.c_prefix}_"
    names = (_STARTS, _WAITS, _IDLES, *_COPIES)
    traced: list[SymbolSize] = []
    for symbol in image.sizes.symbols:
        is_known = symbol.name.startswith(model) or symbol.name in names
        if symbol.kind == "text" and is_known:
            traced.append(symbol)
    return tuple(traced)


def emulators(module: IRModule) -> dict[str, str]:
    """Return the C functions that compute the calls of emulated devices, by device."""
    functions: dict[str, str] = {}
    for name, backend in module_backends(module):
        if backend.emulated_by:
            functions[engine_device(module, name)] = backend.emulated_by
    return functions


def build_emulated_timeline(
    compiled: Compilation,
    counts: Mapping[int, int],
    between: int,
    executed: int,
    unit: str,
) -> CoreTimeline:
    """Return the timeline of one core, counted by operator, and of modeled devices."""
    times = run_schedule.modeled_times(compiled)
    schedule = run_schedule.schedule_run(compiled.module, counts, times)
    makespan = max((call.end for call in schedule), default=0) + between
    modeled = sum(time.cycles for time in times.values())
    sequential = sum(counts.values()) + between + modeled
    parallel = ParallelRun(makespan, sequential, 0, unit)
    return CoreTimeline(schedule, parallel, (executed,))


def build_timeline(
    compiled: Compilation,
    functions: Sequence[SymbolSize],
    steps: Sequence[FunctionEntry],
) -> CoreTimeline:
    prefix = compiled.c_prefix
    spans = list(_core_intervals(functions, steps, 0, prefix))
    remote_spans = list(_core_intervals(functions, steps, 1, prefix))
    remote = [span.instructions for span in remote_spans if not span.name]
    path = _executed_path(compiled, functions, spans)
    starts = [call for call in path or () if call.phase == "start"]
    engine_calls = [call for call in starts if not is_copy_device(call.device)]
    if path is None or len(remote) != len(engine_calls):
        local = sum(not span.name for span in spans)
        raise UsageError(
            f"the trace shows {local} calls on the first core and {len(remote)} on the "
            "second, which no path of the model makes.",
            where=compiled.module.name,
            hint="use profile without --count-instructions.",
        )
    waits = [span.instructions for span in spans if span.name == _WAITS]
    least_wait = min(waits, default=0)
    polled = sum(waits) - len(waits) * least_wait
    counted = sum(span.instructions for span in spans)
    executed = (counted - polled, sum(remote))
    second: Counter[int] = Counter()
    for call, count in zip(engine_calls, remote, strict=True):
        second[call.op] += count
    times = run_schedule.modeled_times(compiled)
    schedule = _schedule(path, spans, remote, times, least_wait)
    modeled = [times[call.op] for call in starts if call.op in times]
    measured = sum(count for op, count in second.items() if op not in times)
    transfers = sum(time.cycles for time in modeled if time.bus)
    sequential = executed[0] + measured + sum(time.cycles for time in modeled)
    run = ParallelRun(schedule.now, sequential, transfers)
    return CoreTimeline(tuple(schedule.calls), run, executed, second)


def _executed_path(
    compiled: Compilation,
    functions: Sequence[SymbolSize],
    spans: Sequence[_CoreInterval],
) -> tuple[tir.PrimFuncCall, ...] | None:
    prefix = compiled.c_prefix
    # A compiler's copy of a function has a suffix; of equal functions, only one may
    # remain.
    addresses: dict[str, int] = {}
    for function in functions:
        addresses[function.name.partition(".")[0]] = function.address

    def is_event(call: tir.PrimFuncCall, span: _CoreInterval) -> bool:
        if call.phase != "call":
            names = _COPIES if is_copy_device(call.device) else _CALLS
            return span.name == names[call.phase == "wait"]
        name = f"{prefix}_{compiled.module.kernel(call.callee).code}"
        return not span.name and addresses.get(name, span.address) == span.address

    body = without_constant_copies(compiled.module, compiled.module.aot_main.body)
    events = (span for span in spans if span.name in _EVENTS)
    return executed_calls(body, events, is_event)


@dataclass(frozen=True, slots=True)
class _CoreInterval:
    """An interval of one core; `name` is "" for a kernel call, else the function."""

    name: str
    address: int
    instructions: int = 0


def _core_intervals(
    functions: Sequence[SymbolSize],
    steps: Sequence[FunctionEntry],
    core: int,
    prefix: str,
) -> Iterator[_CoreInterval]:
    """Yield the intervals of a core but the last; core 1's are between its sleeps."""
    own = {f"{prefix}_run", f"{prefix}_told", _STARTS, _WAITS, *_COPIES}
    for function in functions:
        if function.name.startswith(f"{prefix}_transfer_of_"):
            own.add(function.name)
    between = own if core == 0 else {_IDLES}
    begun: tuple[_CoreInterval, int] | None = None
    for step in steps:
        if step.cpu != core:
            continue
        function, now = functions[step.function], step.executed[core]
        name = function.name if function.name in between else ""
        entered = _CoreInterval(name, function.address)
        if begun is None or core == 0 or begun[0].name != entered.name:
            if begun is not None:
                yield replace(begun[0], instructions=now - begun[1])
            begun = (entered, now)


def _schedule(
    path: Sequence[tir.PrimFuncCall],
    spans: Sequence[_CoreInterval],
    remote: Sequence[int],
    times: ModeledTimes,
    least_wait: int,
) -> RunSchedule:
    """Return the schedule of a run whose devices are concurrent, in instructions."""
    schedule, calls, counts = RunSchedule(times), iter(path), iter(remote)
    for span in spans:
        call = next(calls) if span.name in _EVENTS else None
        if call is not None and call.phase == "wait":
            schedule.add(call, 0)
            schedule.now += least_wait if span.name == _WAITS else span.instructions
        else:
            schedule.now += span.instructions if span.name else 0
            if call is not None:
                count = next(counts) if span.name == _STARTS else span.instructions
                schedule.add(call, count)
    return schedule


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
