"""`firmwright tune`: try kernels where they will run, and write down what they cost."""

from __future__ import annotations

import argparse
import os
from typing import Any

from firmwright.base.errors import UsageError
from firmwright.boards import load_board
from firmwright.cli.shared_options import (
    Outcome,
    add_board_options,
    add_model_options,
    compile_options,
    load_model_argument,
    non_negative_int,
    positive_int,
    positive_seconds,
)
from firmwright.cli.text_table import Cell, format_pairs, format_table
from firmwright.flows.compilation import options_for
from firmwright.ir.tuning_records import ConfiguredSchedule
from firmwright.pipeline import NUMERICS
from firmwright.tune.executors import open_executor
from firmwright.tune.kernel_measurement import make_measurement_setup
from firmwright.tune.log_writer import TuningLogWriter
from firmwright.tune.schedule_search import LayerSearchResult, SearchOptions, TuningResult, tune
from firmwright.tune.search_strategies import STRATEGIES

NAME = "tune"
HELP = "measure kernels for each layer, for compile --tuning to choose by"
_DEFAULTS = SearchOptions()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_options(parser)
    parser.add_argument(
        "--out",
        metavar="LOG",
        required=True,
        help="JSON lines, one a measurement; what is in there is not measured again",
    )
    add_board_options(parser)
    parser.add_argument("--target", metavar="T", help="code generator, e.g. 'cortex-m -mcpu=...'")
    parser.add_argument("--numerics", choices=NUMERICS, help="whose roundings (litert)")
    search = parser.add_argument_group("search")
    search.add_argument(
        "--trials",
        metavar="N",
        type=positive_int,
        default=_DEFAULTS.trials,
        help=f"most kernels of a layer; smaller spaces are measured whole ({_DEFAULTS.trials})",
    )
    search.add_argument(
        "--strategy",
        choices=tuple(STRATEGIES),
        default=_DEFAULTS.strategy,
        help="what is tried of larger spaces: anything, descendants of the best, or what the cost "
        f"model likes ({_DEFAULTS.strategy})",
    )
    search.add_argument(
        "--seed", metavar="S", type=non_negative_int, default=0, help="of the search (0)"
    )
    work = parser.add_argument_group("work")
    work.add_argument(
        "--jobs", metavar="N", type=positive_int, help="processes (one a core; one with --port)"
    )
    work.add_argument(
        "--per-image",
        metavar="N",
        type=positive_int,
        default=_DEFAULTS.kernels_per_image,
        help=f"most kernels in one firmware ({_DEFAULTS.kernels_per_image})",
    )
    work.add_argument(
        "--scheduler", metavar="ADDRESS", default="", help="a Dask scheduler, instead of processes"
    )
    work.add_argument(
        "--port",
        metavar="URL",
        default="",
        help="serial port or pyserial URL of a board, which then counts cycles",
    )
    work.add_argument(
        "--flash",
        metavar="COMMAND",
        default="",
        help="puts an image on that board; {elf}, {bin} and {hex} stand for its files",
    )
    work.add_argument(
        "--timeout", metavar="S", type=positive_seconds, help="seconds for one run (300)"
    )


def run(args: argparse.Namespace) -> Outcome:
    model = load_model_argument(args)
    if "stage" in model.module.attrs:
        raise UsageError(
            "the module has been through passes already.",
            where=model.file,
            hint="the model file itself.",
        )
    if args.port and (args.jobs or 1) > 1:
        raise UsageError("one board runs one kernel at a time.", hint="no --jobs with --port.")
    options = options_for(model.module, compile_options(args))
    board = load_board(options.board, options.board_dirs)
    rig = make_measurement_setup(board, args.port, args.flash, args.timeout)
    plan = SearchOptions(args.trials, args.strategy, args.seed, args.per_image)
    jobs = 1 if args.port else args.jobs or os.cpu_count() or 1
    with TuningLogWriter(args.out) as book, open_executor(jobs, args.scheduler) as crew:
        found = tune(model, options, rig, plan, book, crew)
    return Outcome(tuning_to_json(found, args.out), format_summary(found, args.out))


def tuning_to_json(found: TuningResult, path: str) -> dict[str, Any]:
    """The keys of `tune --json`."""
    return {
        "board": found.board,
        "log": path,
        "unit": found.unit,
        "measured": found.measured,
        "known": found.known,
        "untuned": found.untuned,
        "layers": [
            {
                "layer": layer.what,
                "calls": layer.calls,
                "tried": layer.tried,
                "space": layer.space,
                "bad": layer.bad,
                "best": format_schedule(layer.best),
                "best_count": layer.best_count or None,
                "predicted_best": format_schedule(layer.guess),
                "predicted_best_count": layer.guess_count or None,
            }
            for layer in found.layers
        ],
    }


def format_schedule(choice: ConfiguredSchedule) -> str:
    """A rule and its configuration as metadata and C comments write it."""
    return " ".join([choice[0], *(f"{name}={value}" for name, value in choice[1])])


def format_summary(found: TuningResult, path: str) -> str:
    head = ["layer", "calls", "tried", "of", found.unit, "best kernel", "less than predicted best"]
    rows: list[list[Cell]] = [
        [
            layer.what,
            layer.calls,
            layer.tried,
            layer.space,
            layer.best_count or None,
            format_schedule(layer.best),
            _gain(layer),
        ]
        for layer in found.layers
    ]
    bad = sum(layer.bad for layer in found.layers)
    lines: list[tuple[str, Cell]] = [
        ("board", found.board),
        ("kernels measured", f"{found.measured:,}, and {found.known:,} known from the log"),
        ("wrong or failed", bad),
        ("calls without a choice", found.untuned),
        ("log", path),
    ]
    return f"{format_pairs(lines)}\n\n{format_table(head, rows)}\n\nuse it: --tuning {path}"


def _gain(layer: LayerSearchResult) -> str:
    if not layer.guess_count:
        return "not measured"
    return f"{100 * (1 - layer.best_count / layer.guess_count):.1f} %"
