"""Modeled cycles of one run of models on boards, with their memories."""

import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from firmwright.base.errors import DoesNotFitError
from firmwright.flows.compilation import compile_for
from firmwright.flows.instruction_counts import measure_instructions
from firmwright.flows.model import load_model

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModeledRun:
    """`silicon_range` are the cycles that published figures support; None without figures."""

    model: str
    board: str
    mode: str
    instructions: int
    modeled_cycles: int | None
    silicon_range: tuple[int, int] | None


def measure_modeled_cycles(
    models: Sequence[Path], boards: Sequence[str], modes: Sequence[str]
) -> Iterator[ModeledRun]:
    """Yield a row for each model, board and goal; models that do not fit are skipped."""
    for path in models:
        model = load_model(path)
        for board, mode in itertools.product(boards, modes):
            try:
                run = measure_instructions(compile_for(model, board, optimize=mode))
            except DoesNotFitError as error:
                log.warning("%s on %s: %s", path.name, board, error)
                continue
            total = (run.total.instructions, run.total.cycles, run.silicon_range)
            yield ModeledRun(path.name, board, mode, *total)
