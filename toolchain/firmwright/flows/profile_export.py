"""Files of a profile for other viewers: Perfetto (traces) and Model Explorer (node data).

A trace has one track for each core and DMA channel. Measured costs are placed in the order of the
calls: a call on another device begins when the main core starts it and the device is idle, and the
main core waits for its end. Transfers last from their start to their wait.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from firmwright.flows.profiling import Profile
from firmwright.ir import tir
from firmwright.ir.graph.devices import is_copy_device
from firmwright.ir.tir.traversal import prim_calls
from firmwright.pipeline import Compilation

_MAIN: Final = "main core"
_GRADIENT: Final = ({"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#e0a458"})


@dataclass(frozen=True, slots=True)
class _TraceSpan:
    track: str
    op: int
    begin: int
    end: int


@dataclass(slots=True)
class _CallSchedule:
    """Places the calls of a run; `free` is the time at which each track is idle again."""

    counts: dict[int, int]
    free: dict[str, int] = field(default_factory=lambda: {_MAIN: 0})
    open: dict[tuple[str, int], int] = field(default_factory=dict)

    def place(self, call: tir.PrimFuncCall) -> Iterator[_TraceSpan]:
        now, count = self.free[_MAIN], self.counts.get(call.op, 0)
        key = call.device, call.op
        match call.phase:
            case "start":
                self.open[key] = max(now, self.free.get(call.device, 0))
                self.free[call.device] = self.open[key] + count
            case "wait":
                begin, copies = self.open.pop(key, now), is_copy_device(call.device)
                end = max(now, begin + count) if copies else begin + count
                self.free[_MAIN], self.free[call.device] = max(now, end), end
                yield _TraceSpan(call.device, call.op, begin, end)
            case _:
                self.free[_MAIN] = now + count
                self.counts[call.op] = 0  # a loop's iterations count once
                if count:
                    yield _TraceSpan(call.device or _MAIN, call.op, now, now + count)


def make_trace(compiled: Compilation, measured: Profile) -> dict[str, Any]:
    """Return the run as a trace in the format that Chrome defined, with times in microseconds."""
    operators = {operator.index: operator for operator in measured.operators}
    schedule = _CallSchedule({index: operator.count for index, operator in operators.items()})
    main = compiled.module.entry
    calls = prim_calls(main.body) if isinstance(main, tir.PrimFunc) else ()
    spans = [span for call in calls if call.op in operators for span in schedule.place(call)]
    tracks = list(dict.fromkeys([_MAIN, *(span.track for span in spans)]))
    per_second = measured.clock_hz if measured.unit != "ns" and measured.clock_hz else 1e9
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": measured.model}}
    ]
    for number, track in enumerate(tracks):
        name = {"ph": "M", "name": "thread_name", "pid": 1, "tid": number}
        events.append({**name, "args": {"name": track}})
    for span in spans:
        operator = operators[span.op]
        event = {"ph": "X", "name": operator.name, "cat": operator.kind, "pid": 1}
        place = {"tid": tracks.index(span.track), "ts": 1e6 * span.begin / per_second}
        facts = {"operator": operator.index, "kind": operator.kind, "macs": operator.macs}
        facts |= {"schedule": operator.schedule, measured.unit: operator.count}
        duration = 1e6 * (span.end - span.begin) / per_second
        events.append({**event, **place, "dur": duration, "args": facts})
    conditions = {"board": measured.board, "clock_hz": measured.clock_hz, "unit": measured.unit}
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": conditions}


def make_node_data(measured: Profile) -> dict[str, Any]:
    """Return the cost of each operator by its output tensor, as Model Explorer reads it."""
    results = {operator.name: {"value": operator.count} for operator in measured.operators}
    name = f"{measured.unit} on {measured.board}"
    return {"name": name, "results": results, "gradient": list(_GRADIENT)}
