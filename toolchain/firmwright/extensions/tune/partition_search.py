"""The partition method `collage`: costs are measured or, if not possible, modeled."""

import logging
from collections.abc import Mapping

from firmwright.boards import load_board
from firmwright.extensions.tune.collage_search import search_collage
from firmwright.extensions.tune.kernel_measurement import (
    MeasurementSetup,
    make_measurement_setup,
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
    else:
        log.warning("nothing can be measured on %s: costs are modeled.", board.name)
    with RegionCostLog(request.log) as cost_log:
        result = search_collage(model, compile_options, setup, cost_log)
    return PartitionChoice(result.model, options, result.partition)


PARTITION_METHODS: Mapping[str, PartitionMethod] = {"collage": search_partition}
