"""Files of a profile for other viewers: Perfetto (traces), Model Explorer (node data).

A trace has a track for each core and DMA channel, with the calls of
flows/predict/run_schedule.py. An emulator's transfers are modeled; measured ones last
from start to wait.
"""

from typing import Final

from firmwright.flows.measure.profiling import Profile

_GRADIENT: Final = (
    {"stop": 0, "bgColor": "#ffffff"},
    {"stop": 1, "bgColor": "#e0a458"},
)


def make_trace(measured: Profile) -> dict[str, object]:
    """Return the run as a trace in Chrome's format, with times in microseconds."""
    operators = {operator.index: operator for operator in measured.operators}
    tracks = [""]
    for item in measured.schedule:
        if item.call.device not in tracks:
            tracks.append(item.call.device)
    per_second = 1e9
    if measured.unit != "ns" and measured.clock_hz:
        per_second = measured.clock_hz
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": measured.model}}
    ]
    for number, track in enumerate(tracks):
        name = {"ph": "M", "name": "thread_name", "pid": 1, "tid": number}
        events.append({**name, "args": {"name": track or "main core"}})
    for item in measured.schedule:
        operator = operators[item.call.op]
        event = {"ph": "X", "name": operator.name, "cat": operator.kind, "pid": 1}
        place = {
            "tid": tracks.index(item.call.device),
            "ts": 1e6 * item.begin / per_second,
        }
        facts: dict[str, object] = {
            "operator": operator.index,
            "kind": operator.kind,
            "macs": operator.macs,
            "schedule": operator.schedule,
            measured.unit: operator.count,
        }
        if operator.modeled_cycles:
            facts["modeled_cycles"] = operator.modeled_cycles
        duration = 1e6 * (item.end - item.begin) / per_second
        events.append({**event, **place, "dur": duration, "args": facts})
    conditions = {
        "board": measured.board,
        "clock_hz": measured.clock_hz,
        "unit": measured.unit,
    }
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": conditions}


def make_node_data(measured: Profile) -> dict[str, object]:
    """Return the cost of each operator by output tensor, as Model Explorer reads it."""
    results: dict[str, dict[str, int]] = {}
    for operator in measured.operators:
        results[operator.name] = {"value": operator.count}
    name = f"{measured.unit} on {measured.board}"
    return {"name": name, "results": results, "gradient": list(_GRADIENT)}
