"""Partition a model by method: `eager`, `none`, `collage`, or a file with a search's result.

`none` assigns the open operators to the core. `collage` uses cost models on boards that cannot be
measured.
"""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.base.input_files import read_input_text
from firmwright.boards import load_board
from firmwright.flows.model.compilation import options_for
from firmwright.flows.model.given_options import OptionValues
from firmwright.flows.model.model import Model
from firmwright.partitioning.partition_result import read_partition
from firmwright.partitioning.target_resolution import find_core
from firmwright.targets.registry import backend_of, parse_targets
from firmwright.tune.collage_search import (
    CollageResult,
    apply_partition,
    offload_only,
    search_collage,
)
from firmwright.tune.kernel_measurement import (
    CYCLES,
    EXACT,
    MeasurementSetup,
    make_measurement_setup,
    measurement_context,
)
from firmwright.tune.log_writer import RegionCostLog

log = logging.getLogger(__name__)
EAGER, COLLAGE, NONE = "eager", "collage", "none"


@dataclass(frozen=True, slots=True)
class PartitionRequest:
    """The method or file (`how`), the log, and the port and flash command of a board."""

    how: str = EAGER
    log: str = ""
    port: str = ""
    flash: str = ""
    timeout_s: float | None = None


def partition_model(
    model: Model, options: OptionValues, request: PartitionRequest
) -> tuple[Model, OptionValues]:
    """Return the model with its functions for targets, and the options for its compilation."""
    match request.how:
        case "eager":
            return model, options
        case "none" if options.get("offload"):
            return offload_only(model, options_for(model.module, options)), options
        case "none":
            return model, {**options, "target": _core_of(options.get("target", ""))}
        case "collage":
            return search_partition(model, options, request).model, options
        case file:
            parts = read_partition(_read(Path(file)), file)
            return apply_partition(model, options_for(model.module, options), parts, file), options


def _core_of(target: str) -> str:
    """Return the core among the targets of the option --target, or "" for the board's core."""
    core = find_core(parse_targets(target)) if target else None
    return str(core) if core else ""


def search_partition(
    model: Model, values: OptionValues, request: PartitionRequest
) -> CollageResult:
    """Return the result of a Collage search, with measured costs if the board can be measured."""
    options = options_for(model.module, values)
    board = load_board(options.board, options.board_dirs)
    setup: MeasurementSetup | None = None
    if request.port or board.run.kind == "qemu":
        setup = make_measurement_setup(board, request.port, request.flash, request.timeout_s)
        if setup.method == EXACT and _has_estimates(options.target):
            setup = replace(setup, method=CYCLES)  # The estimates are in cycles too.
    else:
        log.warning("nothing can be measured on %s: costs are modeled.", board.name)
    context = measurement_context(options, setup.method if setup else "modeled")
    with RegionCostLog(request.log) as cost_log:
        return search_collage(model, options, setup, context, cost_log)


def _has_estimates(targets: str) -> bool:
    """Return whether a backend among the targets estimates the cycles of its device."""
    if not targets:
        return False
    backends = [backend_of(target) for target in parse_targets(targets)]
    return any(backend is not None and backend.estimated_by for backend in backends)


def _read(file: Path) -> str:
    try:
        return read_input_text(file)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--partition must be eager, collage, none or a file, "
            f"and {file} cannot be read: {error}.",
            hint="firmwright partition MODEL --partition collage --save-partition FILE writes one.",
        ) from error
