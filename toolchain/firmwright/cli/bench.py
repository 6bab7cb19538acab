"""`firmwright bench`: measure models on boards and compare with other systems."""

import argparse
import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from firmwright.base.errors import IncompleteError, UsageError
from firmwright.bench import prediction_accuracy
from firmwright.bench.compile_cost import CompileCost, measure_compile_costs
from firmwright.bench.model_benchmark import (
    MODES,
    BenchmarkRow,
    find_models,
    measure_models,
)
from firmwright.bench.peer_figures import REFERENCE_PEER, read_peers
from firmwright.bench.prediction_accuracy import (
    ModeledRun,
    Prediction,
    median_error,
    worst_error,
)
from firmwright.bench.silicon_accuracy import SiliconError, measure_silicon_errors
from firmwright.bench.verb_cost import VerbCost, measure_verb_costs
from firmwright.cli.text_table import Cell, format_table
from firmwright.cli.verb import Outcome, counts_by_unit
from firmwright.flows.executors import open_executor
from firmwright.flows.model.model import write_file


def _listed(text: str) -> list[str]:
    """Return the names in a text with commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def run(args: argparse.Namespace) -> Outcome:
    models = tuple(Path(name) for name in args.model) or find_models(args.models)
    boards = _listed(args.boards)
    if args.predict and args.scheduler:
        raise UsageError(
            "--predict and --scheduler exclude each other.", hint="omit one of them."
        )
    if args.predict:
        predictions = prediction_accuracy.compare_predictions(models, boards)
        return _predictions(tuple(predictions))
    if args.silicon:
        return _silicon_errors(measure_silicon_errors())
    if args.compile_time:
        other = Path(args.other_version) if args.other_version else None
        commands = measure_verb_costs(models, boards, other)
        return _compile_costs(measure_compile_costs(models, boards), commands)
    figures = read_peers(Path(args.peers) if args.peers else None)
    modes = _listed(args.modes)
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown:
        raise UsageError(
            f"--modes cannot be {unknown[0]!r}.", hint=f"use {', '.join(MODES)}."
        )
    if args.cycles:
        runs = prediction_accuracy.measure_modeled_cycles(models, boards, modes)
        return _modeled_cycles(tuple(runs))
    with open_executor(1, args.scheduler) as executor:
        rows = measure_models(models, boards, figures, modes, executor)
    if args.write:
        write_file(args.write, format_csv(rows).encode())
    data = {"rival": REFERENCE_PEER, "rows": [row_to_json(row) for row in rows]}
    return Outcome(data, format_summary(rows), _error_of(rows))


def _error_of(rows: Sequence[BenchmarkRow]) -> IncompleteError | None:
    """Return the error after the table if rows of it have no figures."""
    failed = sum(bool(row.problem) for row in rows)
    if not failed:
        return None
    return IncompleteError(f"{failed} of {len(rows)} rows could not be measured.")


def _compile_costs(
    rows: Sequence[CompileCost], commands: Sequence[VerbCost]
) -> Outcome:
    data: list[dict[str, object]] = []
    cells: list[Sequence[Cell]] = []
    notes: list[str] = []
    for row in rows:
        ratios = {
            "seconds_per_operator": round(row.seconds_per_operator, 4),
            "memory_ratio": round(row.memory_ratio, 4),
        }
        data.append({**asdict(row), **ratios})
        model = (row.model, row.board, row.operators, row.model_bytes)
        seconds = f"{row.cpu_seconds:.2f}"
        each_ms = f"{1000 * row.seconds_per_operator:.1f}"
        memory = (row.peak_bytes, f"{row.memory_ratio:.1f}")
        cells.append((*model, seconds, each_ms, *memory))
        if row.problem:
            notes.append(f"{row.model} on {row.board}: {row.problem}")
    head = ["model", "board", "operators", "bytes", "CPU s", "ms/operator"]
    head += ["peak bytes", "ratio"]
    parts = [format_table(head, cells), *notes, "", _format_verb_costs(commands)]
    verbs = [_verb_cost_to_json(row) for row in commands]
    return Outcome({"rows": data, "commands": verbs}, "\n".join(parts))


def _verb_cost_to_json(row: VerbCost) -> dict[str, object]:
    return {**asdict(row), "ratio": None if row.ratio is None else round(row.ratio, 4)}


def _format_verb_costs(rows: Sequence[VerbCost]) -> str:
    cells: list[Sequence[Cell]] = []
    notes: list[str] = []
    for row in rows:
        seconds = (row.cpu_seconds, row.other_seconds, row.ratio)
        cells.append((row.verb, row.model, row.board, *seconds))
        if row.problem:
            notes.append(f"{row.verb} {row.model}: {row.problem}")
    head = ["command", "model", "board", "CPU s", "other version", "ratio"]
    return "\n".join([format_table(head, cells), *notes])


def _modeled_cycles(rows: Sequence[ModeledRun]) -> Outcome:
    cells: list[Sequence[Cell]] = []
    for row in rows:
        low, high = row.silicon_range or (None, None)
        cycles = (row.modeled_cycles, low, high)
        cells.append((row.model, row.board, row.mode, row.instructions, *cycles))
    head = ["model", "board", "mode", "instructions"]
    head += ["modeled cycles", "at least", "at most"]
    return Outcome({"rows": [asdict(row) for row in rows]}, format_table(head, cells))


def _silicon_errors(rows: Sequence[SiliconError]) -> Outcome:
    head = ["code", "core", "chip", "instructions", "modeled", "published", "error"]
    cells: list[Sequence[Cell]] = []
    data: list[dict[str, object]] = []
    for row in rows:
        point = row.point
        counts = (point.instructions, row.modeled, point.published_cycles)
        error = f"{100 * row.error:+.1f} %"
        cells.append((point.code, point.core, point.chip, *counts, error))
        figures = {"modeled_cycles": row.modeled, "error": round(row.error, 4)}
        data.append({**asdict(point), **figures})
    notes = dict.fromkeys(f"{row.point.chip}: {row.point.settings}." for row in rows)
    sources = dict.fromkeys(f"Source: {row.point.source}." for row in rows)
    parts = [format_table(head, cells), "", *notes, *sources]
    return Outcome({"rows": data}, "\n".join(parts))


def _predictions(rows: Sequence[Prediction]) -> Outcome:
    boards: list[dict[str, object]] = []
    lines: list[str] = []
    for board in dict.fromkeys(row.board for row in rows):
        layers = [row for row in rows if row.board == board]
        median, worst = median_error(layers), worst_error(layers)
        lines.append(
            f"{board}: {len(layers)} layers, median error {100 * median:.1f} %, "
            f"worst {100 * worst:.1f} %"
        )
        figures = {
            "board": board,
            "layers": len(layers),
            "median_error": round(median, 4),
            "worst_error": round(worst, 4),
        }
        boards.append(figures)
    cells: list[Sequence[Cell]] = []
    for row in rows:
        where = (row.model.removesuffix(".tflite"), row.board, row.operator, row.kind)
        error = f"{100 * row.error:+.1f} %"
        cells.append((*where, row.schedule, row.predicted, row.counted, error))
    head = ["model", "board", "operator", "kind", "schedule"]
    head += ["predicted", "counted", "error"]
    data = {
        "boards": boards,
        "rows": [{**asdict(row), "error": round(row.error, 4)} for row in rows],
    }
    return Outcome(data, "\n".join([format_table(head, cells), "", *lines]))


def row_to_json(row: BenchmarkRow) -> dict[str, object]:
    return {
        "model": row.model,
        "board": row.board,
        "core": row.core,
        "mode": row.mode,
        "workspace_bytes": row.workspace_bytes,
        "lower_bound_bytes": row.lower_bound_bytes,
        "stack_bytes": row.stack_bytes,
        "compile_seconds": row.compile_seconds,
        "problem": row.problem,
        **counts_by_unit(row.unit, row.count),
        "model_flash_bytes": row.flash_bytes,
        "rival": {
            "instructions": row.peer.instructions,
            "workspace_bytes": row.peer.workspace_bytes,
            "flash_bytes": row.peer.flash_bytes,
        },
        "ratio": None if row.ratio is None else round(row.ratio, 4),
    }


def format_summary(rows: Sequence[BenchmarkRow]) -> str:
    head = ["model", "board", "mode", "count", "unit", "rival's", "ratio"]
    head += ["workspace", "rival's", "flash", "rival's", "stack", "compiled in"]
    cells: list[Sequence[Cell]] = []
    notes: list[str] = []
    for row in rows:
        model, peer = row.model.removesuffix(".tflite"), row.peer
        peer_count = peer.instructions if row.unit == "instructions" else None
        seconds: str | None = None
        if row.compile_seconds is not None:
            seconds = f"{row.compile_seconds:.2f} s"
        names = (model, row.board, row.mode)
        count: Cell = row.count
        if row.problem:
            count = f"[{len(notes) + 1}]"
            notes.append(f"{count} {model} on {row.board}, {row.mode}: {row.problem}")
        costs = (count, row.unit, peer_count, row.ratio)
        workspace = (row.workspace_bytes, peer.workspace_bytes)
        flash = (row.flash_bytes, peer.flash_bytes)
        sizes = (*workspace, *flash, row.stack_bytes)
        cells.append((*names, *costs, *sizes, seconds))
    legend = (
        f"rival: {REFERENCE_PEER} on the same core (code and model file in flash, "
        "arena as workspace); workspace, flash and stack are the model's, in bytes."
    )
    return "\n".join([format_table(head, cells), "", legend, *notes])


def format_csv(rows: Sequence[BenchmarkRow]) -> str:
    """Format the reproducible figures as CSV, without times."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = (
        "model board core mode unit count workspace_bytes lower_bound_bytes "
        "flash_bytes stack_bytes"
    )
    writer.writerow(columns.split())
    for row in rows:
        if not row.problem and row.unit != "ns":
            writer.writerow([getattr(row, column) for column in columns.split()])
    return text.getvalue()
