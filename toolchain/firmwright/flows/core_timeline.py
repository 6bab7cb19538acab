"""The timeline of a run on two cores: the calls of each core and the modeled makespan.

An emulator runs one core at a time, so its clock shows the sum of both. The makespan is modeled
from the instruction counts and the times of transfers (flows/run_schedule.py): a wait ends after the
awaited call. Polling during waits is not counted. A cycle counts as an instruction.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from firmwright.artifacts import Image, SymbolSize
from firmwright.base.errors import UsageError
from firmwright.codegen.function_printer import without_constant_copies
from firmwright.device.instruction_counter import FunctionEntry
from firmwright.flows.model_session import c_prefix
from firmwright.flows.run_schedule import (
    ModeledTime,
    ModeledTimes,
    RunSchedule,
    ScheduledCall,
    modeled_times,
)
from firmwright.ir import tir
from firmwright.ir.graph.devices import is_copy_device
from firmwright.ir.module import IRModule
from firmwright.ir.tir.traversal import prim_calls, walk
from firmwright.pipeline import Compilation
from firmwright.report.model import ParallelRun

_STARTS, _WAITS, _IDLES = "fwr_port_core_start", "fwr_port_core_wait", "core_main"
_COPIES = ("fwr_port_copy_start", "fwr_port_copy_wait")


@dataclass(frozen=True, slots=True)
class CoreCall:
    """A call on a core, with the instruction counts of both cores at its beginning and end.

    `started` and `awaited` are the counts of both cores when the first core had started a call on
    the second, and when it had noticed the end of that call.
    """

    op: int
    core: int
    instructions: int
    begin: tuple[int, int]
    end: tuple[int, int]
    started: tuple[int, int]
    awaited: tuple[int, int]


@dataclass(frozen=True, slots=True)
class CoreTimeline:
    """The calls in order of their start, and the instructions of each core outside its waits.

    `parallel` and `schedule` are modeled, in instructions.
    """

    calls: tuple[CoreCall, ...]
    executed: tuple[int, int]
    parallel: ParallelRun
    schedule: tuple[ScheduledCall, ...]

    @property
    def makespan(self) -> int:
        return self.parallel.makespan

    @property
    def busiest(self) -> int:
        return max(self.executed)

    def of_operators(self, core: int) -> dict[int, int]:
        instructions: dict[int, int] = {}
        for call in self.calls:
            if call.core == core:
                instructions[call.op] = instructions.get(call.op, 0) + call.instructions
        return instructions

    def overlaps(self) -> Iterator[tuple[CoreCall, CoreCall]]:
        for a in (call for call in self.calls if call.core == 0):
            for b in (call for call in self.calls if call.core == 1):
                if b.started[0] <= a.begin[0] and a.end[0] <= b.awaited[0]:
                    yield a, b


def traced_functions(compiled: Compilation, image: Image) -> tuple[SymbolSize, ...]:
    """Return the functions to trace; () for a single core or a main with loops or branches."""
    main = compiled.module.entry
    if not isinstance(main, tir.PrimFunc):
        return ()
    if all(call.phase == "call" for call in prim_calls(main.body)):
        return ()
    if any(isinstance(node, tir.For | tir.If | tir.While) for node in walk(main.body)):
        return ()  # the call that a start belongs to depends on the run
    model = f"{c_prefix(compiled)}_"
    return tuple(
        symbol
        for symbol in image.sizes.symbols
        if symbol.kind == "text"
        and (symbol.name.startswith(model) or symbol.name in (_STARTS, _WAITS, _IDLES, *_COPIES))
    )


def _core_calls(module: IRModule, main: tir.PrimFunc) -> list[tir.PrimFuncCall]:
    body = without_constant_copies(module, main.body)
    return [call for call in prim_calls(body) if not is_copy_device(call.device)]


def build_timeline(
    compiled: Compilation, functions: Sequence[SymbolSize], steps: Sequence[FunctionEntry]
) -> CoreTimeline:
    main = compiled.module.entry
    assert isinstance(main, tir.PrimFunc)
    prefix = c_prefix(compiled)
    spans = [list(_core_intervals(functions, steps, core, prefix)) for core in (0, 1)]
    calls = _core_calls(compiled.module, main)
    local = [span for span in spans[0] if span.name == ""]
    remote = [span for span in spans[1] if span.name == ""]
    local_calls = [call for call in calls if not call.device]
    starts = [call for call in calls if call.phase == "start"]
    if len(local) != len(local_calls) or len(remote) != len(starts):
        raise UsageError(
            f"the trace shows {len(local)} calls on the first core and {len(remote)} on the "
            "second; "
            f"the model makes {len(local_calls)} and {len(starts)}.",
            where=compiled.module.name,
            hint="use profile without --count-instructions.",
        )
    start_ends = [span.end for span in spans[0] if span.name == _STARTS]
    waits = [call for call in calls if call.phase == "wait"]
    wait_spans = [span for span in spans[0] if span.name == _WAITS]
    # The times at which the first core had noticed the end of each remote call.
    awaited = {_call_key(c): span.end for c, span in zip(waits, wait_spans, strict=True)}
    core_calls = [
        CoreCall(call.op, 0, span.instructions, span.begin, span.end, span.begin, span.end)
        for call, span in zip(local_calls, local, strict=True)
    ]
    core_calls += [
        CoreCall(call.op, 1, span.instructions, span.begin, span.end, at, awaited[_call_key(call)])
        for call, span, at in zip(starts, remote, start_ends, strict=True)
    ]
    least_wait = min((span.instructions for span in wait_spans), default=0)
    polled = sum(span.instructions for span in wait_spans) - len(waits) * least_wait
    executed = (
        sum(span.instructions for span in spans[0]) - polled,
        sum(span.instructions for span in remote),
    )
    ordered = tuple(sorted(core_calls, key=lambda call: (sum(call.begin), call.core)))
    modeled, counts = modeled_times(compiled), [span.instructions for span in remote]
    steps_of_main = list(prim_calls(without_constant_copies(compiled.module, main.body)))
    schedule = _schedule(steps_of_main, spans[0], counts, modeled, least_wait)
    transfers = sum(time.cycles for time in modeled.values() if time.bus)
    engine = sum(
        modeled.get(c.op, ModeledTime(n)).cycles for c, n in zip(starts, counts, strict=True)
    )
    run = ParallelRun(schedule.now, executed[0] + engine + transfers, transfers)
    return CoreTimeline(ordered, executed, run, tuple(schedule.calls))


@dataclass(frozen=True, slots=True)
class _CoreInterval:
    """An interval of one core; `name` is "" for a kernel call, else the runtime function."""

    name: str
    begin: tuple[int, int]
    end: tuple[int, int]
    core: int

    @property
    def instructions(self) -> int:
        return self.end[self.core] - self.begin[self.core]


def _call_key(call: tir.PrimFuncCall) -> tuple[str, int]:
    return call.callee, call.op


def _core_intervals(
    functions: Sequence[SymbolSize], steps: Sequence[FunctionEntry], core: int, prefix: str
) -> Iterator[_CoreInterval]:
    """Yield the intervals of a core; those of the second core extend from one sleep to the next.

    The last interval is omitted, because the trace does not show its end.
    """
    own = {f"{prefix}_run", f"{prefix}_told", _STARTS, _WAITS, *_COPIES}
    own |= {f.name for f in functions if f.name.startswith(f"{prefix}_transfer_of_")}
    between = own if core == 0 else {_IDLES}
    core_steps = [step for step in steps if step.cpu == core]
    begun: tuple[str, tuple[int, int]] | None = None
    for step in core_steps:
        function_name = functions[step.function].name
        name = function_name if function_name in between else ""
        if begun is not None and (core == 0 or begun[0] != name):
            yield _CoreInterval(begun[0], begun[1], step.executed, core)
        if begun is None or core == 0 or begun[0] != name:
            begun = (name, step.executed)


def _schedule(
    calls: Sequence[tir.PrimFuncCall],
    spans: Sequence[_CoreInterval],
    others: Sequence[int],
    modeled: ModeledTimes,
    least_wait: int,
) -> RunSchedule:
    """Return the schedule of the run if all devices work concurrently, in instructions."""
    schedule, steps, counts = RunSchedule(modeled), iter(calls), iter(others)
    started: dict[int, int] = {}
    for span in spans:
        call = next(steps) if span.name in ("", _STARTS, _WAITS, *_COPIES) else None
        if span.name in (_WAITS, _COPIES[1]):
            assert call is not None
            schedule.add(call, started.pop(call.op))
            schedule.now += least_wait if span.name == _WAITS else span.instructions
        elif span.name == "":
            assert call is not None
            schedule.add(call, span.instructions)
        else:
            schedule.now += span.instructions
            if call is not None:
                started[call.op] = next(counts) if span.name == _STARTS else 0
                schedule.add(call, started[call.op])
    return schedule
