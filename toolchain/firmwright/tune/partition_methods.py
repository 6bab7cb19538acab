"""The ways to give a model's operators to targets, by name.

In: a model, the options of its compilation, and how: `eager` (as the pipeline does it), `none` (the
core gets all), `search_collage` (by search), or a file with a search's result. Out: the model and
options
to compile. Where a board can be run, Collage measures; where not, it goes by models, and says so.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firmwright.base.errors import UsageError
from firmwright.boards import load_board
from firmwright.flows.compilation import options_for
from firmwright.flows.model import Model
from firmwright.partitioning.partition_result import read_partition
from firmwright.partitioning.target_resolution import find_core
from firmwright.targets.registry import parse_targets
from firmwright.tune.collage_search import CollageResult, apply_partition, search_collage
from firmwright.tune.kernel_measurement import (
    MeasurementSetup,
    make_measurement_setup,
    measurement_context,
)
from firmwright.tune.region_cost_log import RegionCostLog

log = logging.getLogger(__name__)
EAGER, COLLAGE, NONE = "eager", "collage", "none"


@dataclass(frozen=True, slots=True)
class PartitionRequest:
    """How the user wants it: one of the names, or a file; the log; a board behind a port."""

    how: str = EAGER
    log: str = ""
    port: str = ""
    flash: str = ""
    timeout_s: float | None = None


def partition_model(
    model: Model, given: Mapping[str, Any], asked: PartitionRequest
) -> tuple[Model, dict[str, Any]]:
    """The model and the options to compile it with."""
    options = dict(given)
    match asked.how:
        case "eager":
            return model, options
        case "none":
            core = find_core(parse_targets(options["target"])) if options.get("target") else None
            return model, {**options, "target": str(core) if core else ""}
        case "collage":
            return search_partition(model, options, asked).model, options
        case file:
            text = _read(Path(file))
            made = options_for(model.module, options)
            return apply_partition(model, made, read_partition(text, file), file), options


def search_partition(
    model: Model, given: Mapping[str, Any], asked: PartitionRequest
) -> CollageResult:
    """Collage's result, by measuring where that can be done."""
    options = options_for(model.module, given)
    board = load_board(options.board, options.board_dirs)
    rig: MeasurementSetup | None = None
    if asked.port or board.run.kind == "qemu":
        rig = make_measurement_setup(board, asked.port, asked.flash, asked.timeout_s)
    else:
        log.warning("nothing can be measured on %s: costs are modelled.", board.name)
    at = measurement_context(options, rig.method if rig else "modelled")
    with RegionCostLog(asked.log) as book:
        return search_collage(model, options, rig, at, book)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--partition is eager, collage, none or a file, and {file} cannot be read: {error}.",
            hint="firmwright partition MODEL --partition collage --save-partition FILE writes one.",
        ) from error
