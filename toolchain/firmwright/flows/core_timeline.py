"""What each of two cores did in a run, when, and how long that takes where they work at once.

In: a compilation with calls on a second core, its image, and the trace of a counted run
(device/instruction_counter.py). Out: `CoreTimeline`: every call with the instructions that it took
and those that
each core had executed when it began and ended, and the makespan. An emulator lets one core work at
a time, so its clock shows the sum of both; the makespan is modelled from the counts: each core does
its calls in their order, a call of the second one not before its start, a wait not before its end.
What a core executes while it sleeps and looks again is left out. Of a copy that a DMA controller
does, what the first core executes to begin it counts, and the transfer itself takes no time: an
emulator does it in one go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from firmwright.artifacts import Image, SymbolSize
from firmwright.base.errors import UsageError
from firmwright.codegen.function_printer import without_constant_copies
from firmwright.device import FunctionEntry
from firmwright.flows.model_session import c_prefix
from firmwright.ir import tir
from firmwright.ir.graph.devices import is_copy_device
from firmwright.ir.module import IRModule
from firmwright.ir.tir.traversal import prim_calls, walk
from firmwright.pipeline import Compilation

_STARTS, _WAITS, _IDLES = "fwr_port_core_start", "fwr_port_core_wait", "core_main"
_COPIES = ("fwr_port_copy_start", "fwr_port_copy_wait")


@dataclass(frozen=True, slots=True)
class CoreCall:
    """A call on a core: instructions of its own, and of both cores at its begin and its end.

    `started` and `awaited` are those of both cores when the first one had begun a call of the
    second, and when it knew that the call was over; its own calls are under way while they run.
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
    """The `calls` in order of their begins, and what each core `executed` in the run, awake.

    `makespan` is modelled, in instructions.
    """

    calls: tuple[CoreCall, ...]
    executed: tuple[int, int]
    makespan: int

    @property
    def busiest(self) -> int:
        """The instructions of the core that executes most."""
        return max(self.executed)

    def of_operators(self, core: int) -> dict[int, int]:
        """The instructions of each operator's calls on that core."""
        found: dict[int, int] = {}
        for call in self.calls:
            if call.core == core:
                found[call.op] = found.get(call.op, 0) + call.instructions
        return found

    def overlaps(self) -> Iterator[tuple[CoreCall, CoreCall]]:
        """A call of the first core, and one of the second that was under way meanwhile."""
        for a in (call for call in self.calls if call.core == 0):
            for b in (call for call in self.calls if call.core == 1):
                if b.started[0] <= a.begin[0] and a.end[0] <= b.awaited[0]:
                    yield a, b


def traced_functions(compiled: Compilation, image: Image) -> tuple[SymbolSize, ...]:
    """The functions whose begins and ends tell what the cores do; none where there is one core."""
    main = compiled.module.entry
    if not isinstance(main, tir.PrimFunc) or not _phases(compiled.module, main):
        return ()
    if any(isinstance(node, tir.For | tir.If | tir.While) for node in walk(main.body)):
        return ()  # which call a start is of depends on the run
    model = f"{c_prefix(compiled)}_"
    return tuple(
        symbol
        for symbol in image.sizes.symbols
        if symbol.kind == "text"
        and (symbol.name.startswith(model) or symbol.name in (_STARTS, _WAITS, _IDLES, *_COPIES))
    )


def _phases(module: IRModule, main: tir.PrimFunc) -> list[tir.PrimFuncCall]:
    return [call for call in _core_calls(module, main) if call.phase != "call"]


def _core_calls(module: IRModule, main: tir.PrimFunc) -> list[tir.PrimFuncCall]:
    """The calls that cores do in a run."""
    body = without_constant_copies(module, main.body)
    return [call for call in prim_calls(body) if not is_copy_device(call.device)]


def build_timeline(
    compiled: Compilation, functions: Sequence[SymbolSize], steps: Sequence[FunctionEntry]
) -> CoreTimeline:
    """What the trace `steps` between `functions` says."""
    main = compiled.module.entry
    assert isinstance(main, tir.PrimFunc)
    prefix = c_prefix(compiled)
    spans = [list(_core_intervals(functions, steps, core, prefix)) for core in (0, 1)]
    calls = _core_calls(compiled.module, main)
    own = [span for span in spans[0] if span.name == ""]
    other = [span for span in spans[1] if span.name == ""]
    mine = [call for call in calls if not call.device]
    starts = [call for call in calls if call.phase == "start"]
    if len(own) != len(mine) or len(other) != len(starts):
        raise UsageError(
            f"the trace shows {len(own)} calls on the first core and {len(other)} on the second; "
            f"the model makes {len(mine)} and {len(starts)}.",
            where=compiled.module.name,
            hint="profile without --count-instructions.",
        )
    begun = [span.end for span in spans[0] if span.name == _STARTS]
    awaited = _completion_times(calls, spans[0])
    made = [
        CoreCall(call.op, 0, span.instructions, span.begin, span.end, span.begin, span.end)
        for call, span in zip(mine, own, strict=True)
    ]
    made += [
        CoreCall(call.op, 1, span.instructions, span.begin, span.end, at, awaited[_call_key(call)])
        for call, span, at in zip(starts, other, begun, strict=True)
    ]
    waits = sum(span.instructions for span in spans[0] if span.name == _WAITS)
    least_wait = min((s.instructions for s in spans[0] if s.name == _WAITS), default=0)
    count = sum(1 for call in calls if call.phase == "wait")
    executed = (
        sum(span.instructions for span in spans[0]) - waits + count * least_wait,
        sum(span.instructions for span in other),
    )
    ordered = tuple(sorted(made, key=lambda call: (sum(call.begin), call.core)))
    makespan = _makespan(calls, spans[0], [span.instructions for span in other], least_wait)
    return CoreTimeline(ordered, executed, makespan)


@dataclass(frozen=True, slots=True)
class _CoreInterval:
    """A stretch of one core: `name` is "" for a call of a kernel, else what runs between those."""

    name: str
    begin: tuple[int, int]
    end: tuple[int, int]
    core: int

    @property
    def instructions(self) -> int:
        return self.end[self.core] - self.begin[self.core]


def _call_key(call: tir.PrimFuncCall) -> tuple[str, int]:
    return call.callee, call.op


def _completion_times(
    calls: Sequence[tir.PrimFuncCall], spans: Sequence[_CoreInterval]
) -> dict[tuple[str, int], tuple[int, int]]:
    """When each call of the second core was known to be over."""
    waits = [call for call in calls if call.phase == "wait"]
    ends = [span.end for span in spans if span.name == _WAITS]
    return {_call_key(call): end for call, end in zip(waits, ends, strict=True)}


def _core_intervals(
    functions: Sequence[SymbolSize], steps: Sequence[FunctionEntry], core: int, prefix: str
) -> Iterator[_CoreInterval]:
    """The stretches of a core; a call of the second one is all that it does between two sleeps.

    What begins last has no end in the trace: the run's last instructions, and the last sleep.
    """
    own = {f"{prefix}_run", f"{prefix}_told", _STARTS, _WAITS, *_COPIES}
    own |= {f.name for f in functions if f.name.startswith(f"{prefix}_transfer_of_")}
    between = own if core == 0 else {_IDLES}
    mine = [step for step in steps if step.cpu == core]
    begun: tuple[str, tuple[int, int]] | None = None
    for step in mine:
        found = functions[step.function].name
        name = found if found in between else ""
        if begun is not None and (core == 0 or begun[0] != name):
            yield _CoreInterval(begun[0], begun[1], step.executed, core)
        if begun is None or core == 0 or begun[0] != name:
            begun = (name, step.executed)


def _makespan(
    calls: Sequence[tir.PrimFuncCall],
    spans: Sequence[_CoreInterval],
    others: Sequence[int],
    least_wait: int,
) -> int:
    """When the run is over if both cores work at once, in instructions."""
    starts = [call for call in calls if call.phase == "start"]
    waits = iter([call for call in calls if call.phase == "wait"])
    number = 0
    now = free = 0
    ends: dict[tuple[str, int], int] = {}
    for span in spans:
        if span.name == _WAITS:
            call = next(waits)
            now = max(now, ends[_call_key(call)]) + least_wait
            continue
        now += span.instructions
        if span.name == _STARTS:
            call = starts[number]
            free = max(now, free) + others[number]
            ends[_call_key(call)] = free
            number += 1
    return now
