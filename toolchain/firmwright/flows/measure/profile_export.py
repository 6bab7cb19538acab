"""Files of a profile for other viewers: Perfetto (traces) and Model Explorer (node
data).

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
    """Return the run as a trace in the format that Chrome defined, with times in
    microseconds.
    """
    operators = {operator.index: operator for operator in measured.operators}
    tracks = list(
        dict.fromkeys(["", *(item.call.device for item in measured.schedule)])
    )
    per_second = (
        measured.clock_hz if measured.unit != "ns" and measured.clock_hz else 1e9
    )
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
        facts = {
            "operator": operator.index,
            "kind": operator.kind,
            "macs": operator.macs,
        }
        facts |= {"schedule": operator.schedule, measured.unit: operator.count}
        facts |= (
            {"modeled_cycles": operator.modeled_cycles}
            if operator.modeled_cycles
            else {}
        )
        duration = 1e6 * (item.end - item.begin) / per_second
        events.append({**event, **place, "dur": duration, "args": facts})
    conditions = {
        "board": measured.board,
        "clock_hz": measured.clock_hz,
        "unit": measured.unit,
    }
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": conditions}


def make_node_data(measured: Profile) -> dict[str, object]:
    """Return the cost of each operator by its output tensor, as Model Explorer reads
    it.
    """
    results = {
        operator.name: {"value": operator.count} for operator in measured.operators
    }
    name = f"{measured.unit} on {measured.board}"
    return {"name": name, "results": results, "gradient": list(_GRADIENT)}
