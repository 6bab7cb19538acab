"""`firmwright profile`: measure the cost of a run by operator."""

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass

from firmwright.base.errors import UsageError
from firmwright.base.input_files import read_input_text
from firmwright.base.json_input import Json, JsonObject, as_objects, parse_json
from firmwright.base.value_kinds import OBJECTS
from firmwright.boards import load_board
from firmwright.cli import arguments
from firmwright.cli.fit import time_to_json
from firmwright.cli.session_arguments import is_absent, make_session_opener
from firmwright.cli.text_table import Cell, format_pairs, format_table
from firmwright.cli.verb import Outcome, counts_by_unit
from firmwright.flows.measure.core_timeline import CoreTimeline
from firmwright.flows.measure.instruction_counts import InstructionCounts
from firmwright.flows.measure.profile_export import make_node_data, make_trace
from firmwright.flows.measure.profiling import OperatorCost, Profile, profile
from firmwright.flows.model.model import write_file
from firmwright.flows.predict.run_schedule import parallel_calls

OPTIONAL_COLUMNS = ("", "kind", "per MAC")
"""Those that a narrow terminal omits, the first one first."""


def run(args: argparse.Namespace) -> Outcome:
    baseline = read_profile(args.baseline) if args.baseline else None
    if args.in_process:
        raise UsageError(
            "a library in this process has no counters.", hint="omit --in-process."
        )
    if args.count_instructions and args.port:
        what = "instructions are counted in QEMU, not on a board at a port."
        hint = "omit --port, or --count-instructions."
        raise UsageError(what, where="--port", hint=hint)
    timing_board = None
    if args.timing_board:
        timing_board = load_board(args.timing_board, args.board_dirs)
        args.board = f"{args.board}@{args.timing_board}"
    compiled = arguments.compile_from_args(args)
    measured = profile(
        compiled,
        open_with=make_session_opener(args),
        count_instructions=args.count_instructions or is_absent(args, compiled.board),
        timing_board=timing_board,
        compiler=args.compiler,
        runs=args.runs,
        clock_hz=args.clock,
    )
    if args.trace:
        write_json(args.trace, make_trace(measured))
    if args.node_data:
        write_json(args.node_data, make_node_data(measured))
    data = profile_to_json(measured)
    if baseline is None:
        return Outcome(data, format_summary(measured, verbose=args.verbose))
    comparison = compare_profiles(measured, baseline)
    text = format_summary(measured, comparison, verbose=args.verbose)
    return Outcome({**data, "baseline": comparison}, text)


def write_json(path: str, data: Mapping[str, object]) -> None:
    write_file(path, (json.dumps(data, indent=1) + "\n").encode())


def profile_to_json(measured: Profile) -> dict[str, object]:
    """Return the object for `profile --json`; each count is stored under its unit."""
    pools: list[dict[str, object]] = []
    for pool in measured.pools:
        limit = pool.limit_bytes or None
        row = {"name": pool.name, "bytes": pool.used_bytes, "limit_bytes": limit}
        pools.append(row)
    unit = measured.unit
    operators = [_cost_to_json(operator, unit) for operator in measured.operators]
    return {
        "model": measured.model,
        "board": measured.board,
        "resolution": measured.resolution,
        "runs": measured.runs,
        "least": measured.least,
        "most": measured.most,
        "mean": round(measured.mean, 1),
        "flags": measured.flags,
        "probe_overhead": measured.probe_overhead,
        "stack_bytes": measured.stack_bytes,
        "macs": measured.macs,
        **counts_by_unit(measured.unit, measured.total),
        "clock_hz": measured.clock_hz or None,
        "milliseconds": time_to_json(measured.time),
        "pools": pools,
        "exact": None if measured.exact is None else counts_to_json(measured.exact),
        "stack_reserve_bytes": measured.stack_reserve_bytes or None,
        "operators": operators,
    }


def _cost_to_json(operator: OperatorCost, unit: str) -> dict[str, object]:
    return {
        "index": operator.index,
        "name": operator.name,
        "kind": operator.kind,
        "device": operator.device,
        "macs": operator.macs,
        "least": operator.least,
        "schedule": operator.schedule,
        "predicted": operator.predicted,
        "modeled_cycles": operator.modeled_cycles,
        **counts_by_unit(unit, operator.count),
        "instruction_kinds": operator.kinds,
    }


def counts_to_json(counts: InstructionCounts) -> dict[str, object]:
    cores: dict[str, object] = {}
    if counts.timeline is not None:
        cores["cores"] = timeline_to_json(counts.timeline)
    return {
        "instructions": counts.total.instructions,
        "call_overhead": counts.between.instructions,
        "branches_taken": counts.total.branches_taken,
        "modeled_cycles": counts.total.cycles,
        "silicon_cycles": counts.silicon_range,
        "timing_board": counts.timing_board.name,
        **cores,
        "timing": counts.timing.source if counts.timing else "",
        "instruction_kinds": counts.total.kinds,
        "functions": dict(counts.functions),
    }


def timeline_to_json(line: CoreTimeline) -> dict[str, object]:
    trace: list[dict[str, object]] = []
    for item in line.schedule:
        step: dict[str, object] = {
            "operator": item.call.op,
            "device": item.call.device,
            "begin": item.begin,
            "end": item.end,
        }
        trace.append(step)
    return {
        "instructions": line.executed,
        "modeled_makespan": line.makespan,
        "modeled_sequential": line.parallel.sequential,
        "modeled_transfers": line.parallel.transfers,
        "overlapping_calls": sum(1 for _ in parallel_calls(line.schedule)),
        "trace": trace,
    }


def read_profile(path: str) -> JsonObject:
    hint = "give a file with the output of profile --json."
    try:
        data = parse_json(read_input_text(path))
    except (OSError, ValueError) as error:
        what = f"the baseline cannot be read: {error}."
        raise UsageError(what, where=path, hint=hint) from error
    if not isinstance(data, Mapping) or not OBJECTS.includes(data.get("operators")):
        raise UsageError("this is not a profile.", where=path, hint=hint)
    return data


@dataclass(frozen=True, slots=True)
class OperatorChange:
    """The change in an operator's count, None if the earlier profile lacks it."""

    name: str
    change: int | None


@dataclass(frozen=True, slots=True)
class ProfileComparison:
    """The changes since an earlier profile, and the conditions that differ."""

    unit: str
    mismatched_conditions: tuple[str, ...]
    total: int | None
    operators: tuple[OperatorChange, ...]


def compare_profiles(new: Profile, old: JsonObject) -> ProfileComparison:
    """Return the changes in total and by operator; `old` is from `profile --json`."""
    counts = counts_by_unit(new.unit, new.total)
    units = [name for name, count in counts.items() if count is not None]
    unit = units[0]
    before: dict[str, Json] = {}
    for row in as_objects(old["operators"]):
        before[str(row.get("name"))] = row.get(unit)
    changes: list[OperatorChange] = []
    for operator in new.operators:
        change = _difference(operator.count, before.get(operator.name))
        changes.append(OperatorChange(operator.name, change))
    conditions = {
        "model": new.model,
        "board": new.board,
        "clock_hz": new.clock_hz or None,
        "flags": new.flags,
    }
    # A condition that an older profile does not record is not known to differ.
    mismatched: list[str] = []
    for name, value in conditions.items():
        if old.get(name, value) != value:
            mismatched.append(name)
    total = _difference(new.total, old.get(unit))
    return ProfileComparison(unit, tuple(mismatched), total, tuple(changes))


def _difference(new: int, old: Json) -> int | None:
    return new - old if isinstance(old, int) else None


def _format_range(measured: Profile) -> list[tuple[str, Cell]]:
    """Return the figures of runs that differ."""
    if measured.runs == 1:
        return []
    ends = f"{measured.least:,} to {measured.most:,}"
    return [("of all runs", ends), ("mean of all runs", f"{measured.mean:,.0f}")]


def format_summary(
    measured: Profile,
    comparison: ProfileComparison | None = None,
    *,
    verbose: bool = False,
) -> str:
    """Format the figures of a run, then its operators; flags only if `verbose`."""
    total: Cell = measured.total
    if measured.runs > 1:
        total = f"{total:,}, median of {measured.runs}"
    rows: list[tuple[str, Cell]] = [
        ("model", measured.model),
        ("board", measured.board),
        *_format_times(measured),
        (f"{measured.unit} per run", total),
        *_format_range(measured),
        ("multiply-adds", measured.macs),
    ]
    if measured.macs:
        per_mac = measured.total / measured.macs
        rows.append((f"{measured.unit} per multiply-add", per_mac))
    for pool in measured.pools:
        limit = f" of {pool.limit_bytes:,}" if pool.limit_bytes else ""
        rows.append((f"pool {pool.name}", f"{pool.used_bytes:,}{limit} bytes"))
    if measured.stack_bytes is not None:
        used = f"{measured.stack_bytes:,} of {measured.stack_reserve_bytes:,} bytes"
        rows.append(("stack used by the firmware", used))
    if measured.clock_hz:
        rows.append(("clock", f"{measured.clock_hz / 1e6:g} MHz"))
    rows.append(("resolution", f"{measured.resolution:,} {measured.unit}"))
    if measured.exact is None:
        rows.append(("probe overhead", f"{measured.probe_overhead:,} {measured.unit}"))
    else:
        rows += _format_exact(measured.exact)
    if comparison is not None:
        rows.append(("change", comparison.total))
        differing = comparison.mismatched_conditions
        if differing:
            rows.append(("conditions that differ", ", ".join(differing)))
    if verbose:
        rows.append(("compiled with", measured.flags))
    return f"{format_pairs(rows)}\n\n{format_operator_table(measured, comparison)}"


def _format_times(measured: Profile) -> list[tuple[str, Cell]]:
    """Return the time of a run, and the times that devices estimate."""
    rows: list[tuple[str, Cell]] = []
    is_instructions = measured.unit == "instructions"
    if measured.exact is not None and measured.exact.parallel:
        ms = milliseconds(measured, measured.exact.parallel.makespan)
        rows.append(("time", None if ms is None else f"{ms:.3f} ms, modeled"))
    elif measured.time is not None:
        rows += [("time", str(measured.time)), ("", measured.time.reason)]
    elif not is_instructions:
        ms = milliseconds(measured, measured.total)
        rows.append(("time", None if ms is None else f"{ms:.3f} ms, measured"))
    model = ""
    if is_instructions:
        counted = "included below" if measured.exact is None else "not counted"
        model = f"; its software model is {counted}"
    for device, estimated, source in measured.estimates:
        ms = milliseconds(measured, estimated)
        time = "" if ms is None else f" ({ms:.3f} ms)"
        text = f"{estimated:,} cycles{time}, as {source} estimates{model}"
        rows.append((f"on {device}", text))
    return rows


def _format_exact(exact: InstructionCounts) -> list[tuple[str, Cell]]:
    """Return the counts of single instructions and the cycles modeled from them."""
    rows: list[tuple[str, Cell]] = [
        ("counted one by one", f"{exact.total.instructions:,} instructions"),
        ("modeled cycles", exact.describe_cycles()),
    ]
    if exact.timeline is not None:
        line = exact.timeline
        if len(line.executed) > 1:
            shares = " and ".join(f"{count:,}" for count in line.executed)
            rows.append(("on two cores", f"{shares} instructions"))
        makespan = f"{line.makespan:,} {line.parallel.unit}"
        rows.append(("in parallel", f"{makespan}, {line.parallel}"))
    if exact.timing:
        rows.append(("cycle model", f"{exact.timing.source}; {_describe_flash(exact)}"))
    return rows


def _describe_flash(exact: InstructionCounts) -> str:
    board = exact.timing_board
    waits = board.flash.wait_states
    flash = "not modeled" if waits is None else f"with {waits} wait states"
    return f"flash of {board.name} {flash}; executed on QEMU's {exact.machine}"


def milliseconds(measured: Profile, count: int) -> float | None:
    """Convert a count of ns or cycles at the board's clock."""
    per_second = 1e9 if measured.unit == "ns" else measured.clock_hz
    return 1e3 * count / per_second if per_second else None


def format_operator_table(
    measured: Profile, comparison: ProfileComparison | None
) -> str:
    total = measured.total or 1
    is_mixed = len({operator.device for operator in measured.operators}) > 1
    line = None if measured.exact is None else measured.exact.timeline
    elsewhere = () if line is None else line.elsewhere
    rows: list[dict[str, Cell]] = []
    for index, operator in enumerate(measured.operators):
        macs, count = operator.macs, operator.count
        share = count / total
        row: dict[str, Cell] = {"#": operator.index, "operator": operator.label}
        row["kind"] = operator.kind
        if is_mixed:
            row["device"] = operator.device
        row["MACs"] = macs or None
        row[measured.unit] = count or (None if operator.modeled_cycles else 0)
        if comparison is not None:
            row["change"] = comparison.operators[index].change
        if measured.exact is not None:
            row["cycles"] = operator.modeled_cycles
        if measured.unit != "instructions" or measured.exact is not None:
            ms = milliseconds(measured, operator.modeled_cycles or count)
            row["ms"] = None if ms is None else f"{ms:.3f}"
        if measured.exact is None and comparison is None:
            row["per MAC"] = count / macs if macs else None
        is_included = operator.index not in elsewhere
        row["share"] = f"{100 * share:4.1f} %" if is_included else None
        if measured.exact is None and comparison is None:
            row[""] = "█" * round(12 * share)
        rows.append(row)
    head = list(rows[0]) if rows else []
    values = [list(row.values()) for row in rows]
    return format_table(head, values, drop=OPTIONAL_COLUMNS)
