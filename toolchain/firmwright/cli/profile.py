"""`firmwright profile`: what a run costs, operator by operator."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from firmwright.base.errors import UsageError
from firmwright.base.json_input import parse_json
from firmwright.cli.session_options import (
    add_count_instructions_option,
    add_session_options,
    make_session_opener,
)
from firmwright.cli.shared_options import (
    Outcome,
    add_compile_options,
    add_model_options,
    compile_from_args,
)
from firmwright.cli.text_table import Cell, format_pairs, format_table
from firmwright.flows.core_timeline import CoreTimeline
from firmwright.flows.instruction_counts import InstructionCounts
from firmwright.flows.profiling import RUNS, Profile, profile

NAME = "profile"
HELP = "measure a model on a board, operator by operator"
CONDITIONS = ("model", "board", "clock_hz", "flags")
"""What two profiles must have in common to be compared number by number."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_options(parser)
    parser.add_argument(
        "--baseline", metavar="JSON", help="an earlier profile --json, to compare with"
    )
    add_count_instructions_option(parser)
    parser.add_argument(
        "--runs",
        metavar="N",
        type=_runs,
        help="measure N runs and give median and least (1 in QEMU, where counts repeat; else "
        f"{RUNS})",
    )
    add_compile_options(parser)
    add_session_options(parser)


def _runs(text: str) -> int:
    runs = int(text)
    if runs < 1:
        raise ValueError(text)
    return runs


def run(args: argparse.Namespace) -> Outcome:
    old = read_profile(args.baseline) if args.baseline else None
    if args.in_process:
        raise UsageError("a library in this process has no counters.", hint="no --in-process.")
    found = profile(
        compile_from_args(args),
        open_with=make_session_opener(args),
        exact=args.count_instructions,
        compiler=args.compiler,
        runs=args.runs,
    )
    data = profile_to_json(found)
    if old is not None:
        data["against"] = compare_profiles(data, old)
    return Outcome(data, format_summary(found, old))


def profile_to_json(found: Profile) -> dict[str, Any]:
    """The keys of `profile --json`: counts stand under the unit they are of, null elsewhere."""

    def counts(value: int) -> dict[str, int | None]:
        return {
            "instructions": value if found.unit == "instructions" else None,
            "cycles": value if found.unit == "cycles" else None,
            "nanoseconds": value if found.unit == "ns" else None,
        }

    return {
        "model": found.model,
        "board": found.board,
        **counts(found.total),
        "resolution": found.resolution,
        "runs": found.runs,
        "least": found.least,
        "clock_hz": found.clock_hz or None,
        "flags": found.flags,
        "pools": [
            {"name": pool.name, "bytes": pool.used_bytes, "limit_bytes": pool.limit_bytes or None}
            for pool in found.pools
        ],
        "exact": None if found.exact is None else counts_to_json(found.exact),
        "probe_overhead": found.probe_overhead,
        "stack_bytes": found.stack_bytes,
        "stack_reserve_bytes": found.stack_reserve_bytes or None,
        "macs": found.macs,
        "operators": [
            {
                "name": operator.name,
                "kind": operator.kind,
                "macs": operator.macs,
                **counts(operator.count),
                "least": operator.least,
                "schedule": operator.schedule,
                "predicted": operator.predicted,
                "modelled_cycles": operator.modelled_cycles,
                "instruction_kinds": operator.kinds,
            }
            for operator in found.operators
        ],
    }


def counts_to_json(counts: InstructionCounts) -> dict[str, Any]:
    """Everything that ran, exactly; `between` is what the operators' calls themselves take."""
    return {
        "instructions": counts.total.instructions,
        "call_overhead": counts.between.instructions,
        "branches_taken": counts.total.taken,
        "modelled_cycles": counts.total.cycles,
        **({} if counts.timeline is None else {"cores": timeline_to_json(counts.timeline)}),
        "timing": counts.timing_source,
        "instruction_kinds": dict(counts.total.kinds),
        "functions": dict(counts.functions),
    }


def timeline_to_json(line: CoreTimeline) -> dict[str, Any]:
    """What two cores did, and how long that takes where they work at once, which is modelled."""
    return {
        "instructions": list(line.executed),
        "modelled_makespan": line.makespan,
        "overlapping_calls": sum(1 for _ in line.overlaps()),
        "trace": [
            {
                "operator": call.op,
                "core": call.core,
                "instructions": call.instructions,
                "begin": list(call.begin),
                "end": list(call.end),
                "started": list(call.started),
                "awaited": list(call.awaited),
            }
            for call in line.calls
        ],
    }


def read_profile(path: str) -> dict[str, Any]:
    """An object that `profile --json` printed."""
    try:
        found = parse_json(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"the earlier profile cannot be read: {error}.", where=path) from error
    if not isinstance(found, dict) or not isinstance(found.get("operators"), list):
        raise UsageError(
            "this is no profile.", where=path, hint="a file with the output of profile --json."
        )
    return found


def compare_profiles(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """New less old, in all and by operator name; and what else is not the same."""
    unit = _unit(new)
    before = {str(row.get("name")): row.get(unit) for row in old["operators"]}
    return {
        "unit": unit,
        "mismatched_conditions": [
            key for key in CONDITIONS if old.get(key, new.get(key)) != new.get(key)
        ],
        "total": _less(new[unit], old.get(unit)),
        "operators": [
            {"name": row["name"], "change": _less(row[unit], before.get(row["name"]))}
            for row in new["operators"]
        ],
    }


def _unit(data: Mapping[str, Any]) -> str:
    return next(u for u in ("instructions", "cycles", "nanoseconds") if data[u] is not None)


def _less(new: int, old: Any) -> int | None:
    return new - old if isinstance(old, int) else None


def format_summary(found: Profile, old: Mapping[str, Any] | None = None) -> str:
    """Totals, then the table of operators."""
    rows: list[tuple[str, Cell]] = [
        ("model", found.model),
        ("board", found.board),
        (f"{found.unit} per run", _total(found)),
        ("multiply-adds", found.macs),
    ]
    if found.macs:
        rows.append((f"{found.unit} per multiply-add", found.total / found.macs))
    for pool in found.pools:
        limit = f" of {pool.limit_bytes:,}" if pool.limit_bytes else ""
        rows.append((f"pool {pool.name}", f"{pool.used_bytes:,}{limit} bytes"))
    if found.stack_bytes is not None:
        rows.append(("stack used", f"{found.stack_bytes:,} of {found.stack_reserve_bytes:,} bytes"))
    if found.clock_hz:
        rows.append(("clock", f"{found.clock_hz / 1e6:g} MHz"))
    rows.append(("compiled with", found.flags))
    rows.append(("resolution", f"{found.resolution:,} {found.unit}"))
    if found.exact is None:
        rows.append(("probes cost", f"{found.probe_overhead:,} {found.unit}"))
    else:
        rows.append(("counted one by one", f"{found.exact.total.instructions:,} instructions"))
        rows.append(("modelled cycles", found.exact.total.cycles))
        if found.exact.timeline is not None:
            line = found.exact.timeline
            shares = " and ".join(f"{count:,}" for count in line.executed)
            rows.append(("on two cores", f"{shares} instructions"))
            rows.append(("at once, modelled", f"{line.makespan:,} instructions"))
        if found.exact.timing_source:
            rows.append(("cycles are modelled by", found.exact.timing_source))
    if old is not None:
        compared = compare_profiles(profile_to_json(found), old)
        rows.append(("change", compared["total"]))
        if compared["mismatched_conditions"]:
            rows.append(("not alike", ", ".join(compared["mismatched_conditions"])))
    return f"{format_pairs(rows)}\n\n{format_operator_table(found, old)}"


def _total(found: Profile) -> Cell:
    if found.runs == 1:
        return found.total
    return f"{found.total:,}, the median of {found.runs}; {found.least:,} at least"


def format_operator_table(found: Profile, old: Mapping[str, Any] | None = None) -> str:
    """One row an operator, with its share and a bar."""
    total = sum(operator.count for operator in found.operators) or 1
    head = ["operator", "kind", "MACs", found.unit, "predicted", "per MAC", "share", ""]
    if found.exact is not None:
        head.insert(5, "modelled cycles")
    changes = (
        compare_profiles(profile_to_json(found), old)["operators"] if old is not None else None
    )
    rows: list[list[Cell]] = []
    for index, operator in enumerate(found.operators):
        share = operator.count / total
        row: list[Cell] = [
            operator.name,
            operator.kind,
            operator.macs or None,
            operator.count,
            operator.predicted,
            operator.count / operator.macs if operator.macs else None,
            f"{100 * share:4.1f} %",
            "█" * round(24 * share),
        ]
        if found.exact is not None:
            row.insert(5, operator.modelled_cycles)
        if changes is not None:
            row.insert(4, changes[index]["change"])
        rows.append(row)
    if changes is not None:
        head.insert(4, "change")
    return format_table(head, rows)
