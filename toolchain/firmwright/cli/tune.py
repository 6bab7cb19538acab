"""`firmwright tune`: measure kernels for each layer and log the results."""

import argparse
import os
from collections.abc import Sequence
from typing import Any

from firmwright.base.errors import UsageError
from firmwright.boards import load_board
from firmwright.cli import arguments
from firmwright.cli.option_values import non_negative_int, positive_int
from firmwright.cli.text_table import Cell, format_pairs, format_table
from firmwright.cli.verb import Outcome, add_options, fields_of
from firmwright.flows.compilation import options_for
from firmwright.flows.executors import open_executor
from firmwright.ir.tuning_records import ConfiguredSchedule
from firmwright.tune.kernel_measurement import make_measurement_setup
from firmwright.tune.log_writer import TuningLogWriter
from firmwright.tune.schedule_search import SearchOptions, TuningResult, tune
from firmwright.tune.search_strategies import STRATEGIES

NAME = "tune"
HELP = "measure kernels for each layer, as input to compile --tuning"
_DEFAULTS = SearchOptions()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_model_options(parser)
    add_options(
        parser,
        "--out LOG  log to append to (JSON lines); measurements in it are not repeated",
        out={"required": True},
    )
    arguments.add_board_options(parser)
    arguments.add_target_option(parser)
    arguments.add_numerics_option(parser)
    search = parser.add_argument_group("search")
    add_options(
        search,
        f"""
        --trials N  maximum number of kernels for a layer (default: {_DEFAULTS.trials})
        --strategy  search strategy for larger spaces: random, evolutionary, or guided by the cost
            model (default: {_DEFAULTS.strategy})
        --seed S  random seed (default: 0)
        """,
        trials={"type": positive_int, "default": _DEFAULTS.trials},
        strategy={"choices": tuple(STRATEGIES), "default": _DEFAULTS.strategy},
        seed={"type": non_negative_int, "default": 0},
    )
    work = parser.add_argument_group("work")
    add_options(
        work,
        f"""
        --jobs N  parallel processes (default: one for each core; one with --port)
        --per-image N  maximum number of kernels in a firmware (default:
            {_DEFAULTS.kernels_per_image})
        --scheduler ADDRESS  use a Dask scheduler instead of processes
        """,
        jobs={"type": positive_int},
        per_image={"type": positive_int, "default": _DEFAULTS.kernels_per_image},
        scheduler={"default": ""},
    )
    arguments.add_measurement_options(work)


def run(args: argparse.Namespace) -> Outcome:
    model = arguments.load_model_argument(args)
    if "stage" in model.module.attrs:
        what = "the module is partly compiled already."
        raise UsageError(what, where=model.file, hint="tune the model file instead.")
    if args.port and (args.jobs or 1) > 1:
        raise UsageError("a single board cannot run several jobs.", hint="omit --jobs with --port.")
    options = options_for(model.module, arguments.compile_options(args))
    board = load_board(options.board, options.board_dirs)
    rig = make_measurement_setup(board, args.port, args.flash_command, args.timeout)
    plan = SearchOptions(args.trials, args.strategy, args.seed, args.per_image)
    jobs = 1 if args.port else args.jobs or os.cpu_count() or 1
    with TuningLogWriter(args.out) as book, open_executor(jobs, args.scheduler) as crew:
        result = tune(model, options, rig, plan, book, crew)
    return Outcome(tuning_to_json(result, args.out), format_summary(result, args.out))


def tuning_to_json(result: TuningResult, path: str) -> dict[str, Any]:
    return {
        **fields_of(result, "board unit measured untuned"),
        "log": path,
        "known": result.from_log,
        "layers": [
            {
                "layer": layer.description,
                **fields_of(layer, "calls tried space bad"),
                "best": format_schedule(layer.best),
                "best_count": layer.best_count or None,
                "predicted_best": format_schedule(layer.guess),
                "predicted_best_count": layer.guess_count or None,
            }
            for layer in result.layers
        ],
    }


def format_schedule(choice: ConfiguredSchedule) -> str:
    """Format a schedule and its configuration as in metadata and C comments."""
    return " ".join([choice[0], *(f"{name}={value}" for name, value in choice[1])])


def format_summary(result: TuningResult, path: str) -> str:
    head = ["layer", "calls", "tried", "of", result.unit, "best kernel", "less than predicted best"]
    rows: list[Sequence[Cell]] = []
    for layer in result.layers:
        tried = (layer.description, layer.calls, layer.tried, layer.space)
        best = (layer.best_count or None, format_schedule(layer.best))
        gain = "not measured"
        if layer.guess_count:
            gain = f"{100 * (1 - layer.best_count / layer.guess_count):.1f} %"
        rows.append((*tried, *best, gain))
    bad = sum(layer.bad for layer in result.layers)
    lines: list[tuple[str, Cell]] = [
        ("board", result.board),
        ("kernels measured", f"{result.measured:,}, and {result.from_log:,} known from the log"),
        ("wrong or failed", bad),
        ("calls without a choice", result.untuned),
        ("log", path),
    ]
    return (
        f"{format_pairs(lines)}\n\n{format_table(head, rows)}\n\nTo use it: compile --tuning {path}"
    )
