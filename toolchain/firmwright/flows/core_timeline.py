"""The timeline of a run on two cores, with counted instructions and a modeled schedule.

An emulator runs one core at a time, so the schedule is modeled from the instruction counts and the
times of transfers (flows/run_schedule.py). Polling during waits is not counted. A cycle counts as
an instruction.
"""

from collections.abc import Iterator, Mapping, Sequence
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
class CoreTimeline:
    """The modeled schedule, and the counted instructions of each core outside its waits.

    `second` holds the instructions of the second core by operator.
    """

    schedule: tuple[ScheduledCall, ...]
    parallel: ParallelRun
    executed: tuple[int, int]
    second: Mapping[int, int]

    @property
    def makespan(self) -> int:
        return self.parallel.makespan


def traced_functions(compiled: Compilation, image: Image) -> tuple[SymbolSize, ...]:
    """Return the functions to trace; () for calls on one device, or with loops or branches.

    Raise UsageError for calls on accelerators of a board with one core.
    """
    main = compiled.module.entry
    if not isinstance(main, tir.PrimFunc):
        return ()
    if all(call.phase == "call" for call in prim_calls(main.body)):
        return ()
    if compiled.board.cores is None:
        what = "exact counts of calls on accelerators need a board with two cores."
        hint = "use --board mps2-an521, or profile without --count-instructions."
        raise UsageError(what, where=compiled.board.name, hint=hint)
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
            f"second; the model makes {len(local_calls)} and {len(starts)}.",
            where=compiled.module.name,
            hint="use profile without --count-instructions.",
        )
    waits = [span.instructions for span in spans[0] if span.name == _WAITS]
    least_wait = min(waits, default=0)
    polled = sum(waits) - len(waits) * least_wait
    executed = (
        sum(span.instructions for span in spans[0]) - polled,
        sum(span.instructions for span in remote),
    )
    counted = zip(starts, remote, strict=True)
    second = {call.op: span.instructions for call, span in counted}
    times = {op: ModeledTime(count) for op, count in second.items()} | modeled_times(compiled)
    steps_of_main = prim_calls(without_constant_copies(compiled.module, main.body))
    schedule = _schedule(iter(steps_of_main), spans[0], times, least_wait)
    transfers = sum(time.cycles for time in times.values() if time.bus)
    sequential = executed[0] + sum(time.cycles for time in times.values())
    run = ParallelRun(schedule.now, sequential, transfers)
    return CoreTimeline(tuple(schedule.calls), run, executed, second)


@dataclass(frozen=True, slots=True)
class _CoreInterval:
    """An interval of one core; `name` is "" for a kernel call, else the runtime function."""

    name: str
    instructions: int


def _core_intervals(
    functions: Sequence[SymbolSize], steps: Sequence[FunctionEntry], core: int, prefix: str
) -> Iterator[_CoreInterval]:
    """Yield the intervals of a core; those of the second core extend from one sleep to the next.

    The last interval is omitted.
    """
    own = {f"{prefix}_run", f"{prefix}_told", _STARTS, _WAITS, *_COPIES}
    own |= {f.name for f in functions if f.name.startswith(f"{prefix}_transfer_of_")}
    between = own if core == 0 else {_IDLES}
    core_steps = [step for step in steps if step.cpu == core]
    begun: tuple[str, int] | None = None
    for step in core_steps:
        function_name, now = functions[step.function].name, step.executed[core]
        name = function_name if function_name in between else ""
        if begun is not None and (core == 0 or begun[0] != name):
            yield _CoreInterval(begun[0], now - begun[1])
        if begun is None or core == 0 or begun[0] != name:
            begun = (name, now)


def _schedule(
    calls: Iterator[tir.PrimFuncCall],
    spans: Sequence[_CoreInterval],
    times: ModeledTimes,
    least_wait: int,
) -> RunSchedule:
    """Return the schedule of the run if all devices work concurrently, in instructions."""
    schedule = RunSchedule(times)
    for span in spans:
        call = next(calls) if span.name in ("", _STARTS, _WAITS, *_COPIES) else None
        if call is not None and call.phase == "wait":
            schedule.add(call, 0)
            schedule.now += least_wait if span.name == _WAITS else span.instructions
        else:
            schedule.now += span.instructions if span.name else 0
            if call is not None:
                schedule.add(call, span.instructions)
    return schedule
