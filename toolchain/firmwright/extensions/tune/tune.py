"""`firmwright tune`: measure kernels for each layer and log the results."""

import argparse
import os
from collections.abc import Sequence

from firmwright.base.errors import UsageError
from firmwright.boards import load_board
from firmwright.cli import arguments
from firmwright.cli.text_table import Cell, format_pairs, format_table
from firmwright.cli.verb import Outcome
from firmwright.extensions.tune.kernel_measurement import make_measurement_setup
from firmwright.extensions.tune.log_writer import TuningLogWriter
from firmwright.extensions.tune.schedule_search import (
    LayerSearchResult,
    SearchOptions,
    TuningResult,
    tune,
)
from firmwright.flows.executors import open_executor
from firmwright.flows.model.compilation import options_for
from firmwright.ops.tuning_records import ConfiguredSchedule


def run(args: argparse.Namespace) -> Outcome:
    model = arguments.load_model_argument(args)
    if model.module.is_started:
        what = "the module is partly compiled already."
        raise UsageError(what, where=model.file, hint="tune the model file instead.")
    if args.port and (args.jobs or 1) > 1:
        what = "a single board cannot run several jobs."
        raise UsageError(what, hint="omit --jobs with --port.")
    options = options_for(model.module, arguments.compile_options(args))
    board = load_board(options.board, options.board_dirs)
    rig = make_measurement_setup(board, args.port, args.flash_command, args.timeout)
    plan = SearchOptions(args.trials, args.strategy, args.seed, args.per_image)
    jobs = 1 if args.port else args.jobs or os.cpu_count() or 1
    with TuningLogWriter(args.out) as book, open_executor(jobs, args.scheduler) as crew:
        result = tune(model, options, rig, plan, book, crew)
    return Outcome(tuning_to_json(result, args.out), format_summary(result, args.out))


def tuning_to_json(result: TuningResult, path: str) -> dict[str, object]:
    return {
        "board": result.board,
        "unit": result.unit,
        "measured": result.measured,
        "untuned": result.untuned,
        "log": path,
        "known": result.from_log,
        "layers": [_layer_to_json(layer) for layer in result.layers],
    }


def _layer_to_json(layer: LayerSearchResult) -> dict[str, object]:
    return {
        "layer": layer.description,
        "calls": layer.calls,
        "tried": layer.tried,
        "space": layer.space,
        "bad": layer.bad,
        "best": format_schedule(layer.best),
        "best_count": layer.best_count or None,
        "predicted_best": format_schedule(layer.guess),
        "predicted_best_count": layer.guess_count or None,
    }


def format_schedule(choice: ConfiguredSchedule) -> str:
    """Format a schedule and its configuration as in metadata and C comments."""
    settings = (f"{name}={value}" for name, value in choice.settings)
    return " ".join([choice.rule, *settings])


def format_summary(result: TuningResult, path: str) -> str:
    head = [
        "layer",
        "calls",
        "tried",
        "of",
        result.unit,
        "best kernel",
        "less than predicted best",
    ]
    rows: list[Sequence[Cell]] = []
    for layer in result.layers:
        tried = (layer.description, layer.calls, layer.tried, layer.space)
        best = (layer.best_count or None, format_schedule(layer.best))
        gain = "not measured"
        if layer.guess_count:
            gain = f"{100 * (1 - layer.best_count / layer.guess_count):.1f} %"
        rows.append((*tried, *best, gain))
    bad = sum(layer.bad for layer in result.layers)
    measured = f"{result.measured:,}, and {result.from_log:,} known from the log"
    lines: list[tuple[str, Cell]] = [
        ("board", result.board),
        ("kernels measured", measured),
        ("wrong or failed", bad),
        ("calls without a choice", result.untuned),
        ("log", path),
    ]
    use = f"To use it: compile --tuning {path}"
    return "\n\n".join([format_pairs(lines), format_table(head, rows), use])
