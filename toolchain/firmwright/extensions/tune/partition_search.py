"""The partition method `collage`: costs are measured or, if not possible, modeled."""

import logging
from collections.abc import Mapping
from dataclasses import replace

from firmwright.boards import load_board
from firmwright.extensions.tune.collage_search import search_collage
from firmwright.extensions.tune.kernel_measurement import (
    CYCLES,
    EXACT,
    MeasurementSetup,
    make_measurement_setup,
    measurement_context,
)
from firmwright.extensions.tune.log_writer import RegionCostLog
from firmwright.flows.model.compilation import options_for
from firmwright.flows.model.given_options import OptionValues
from firmwright.flows.model.model import Model
from firmwright.flows.model.partition_methods import (
    PartitionChoice,
    PartitionMethod,
    PartitionRequest,
)
from firmwright.targets.registry import backend_of, parse_targets

log = logging.getLogger(__name__)


def search_partition(
    model: Model, options: OptionValues, request: PartitionRequest
) -> PartitionChoice:
    """Return the result of a Collage search, with measured costs where possible."""
    compile_options = options_for(model.module, options)
    board = load_board(compile_options.board, compile_options.board_dirs)
    setup: MeasurementSetup | None = None
    if request.port or board.run.kind == "qemu":
        setup = make_measurement_setup(
            board, request.port, request.flash, request.timeout_s
        )
        if setup.method == EXACT and _has_estimates(compile_options.target):
            # The estimates are in cycles too.
            setup = replace(setup, method=CYCLES)
    else:
        log.warning("nothing can be measured on %s: costs are modeled.", board.name)
    context = measurement_context(compile_options, setup.method if setup else "modeled")
    with RegionCostLog(request.log) as cost_log:
        result = search_collage(model, compile_options, setup, context, cost_log)
    return PartitionChoice(result.model, options, result.partition)


def _has_estimates(targets: str) -> bool:
    """Return whether a backend among the targets estimates the cycles of its device."""
    if not targets:
        return False
    backends = [backend_of(target) for target in parse_targets(targets)]
    return any(backend is not None and backend.estimated_by for backend in backends)


PARTITION_METHODS: Mapping[str, PartitionMethod] = {"collage": search_partition}
