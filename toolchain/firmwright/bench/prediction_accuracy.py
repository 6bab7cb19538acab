"""Exact counts of models on boards: modeled cycles, and the cost model's accuracy."""

import itertools
import logging
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from firmwright.base.errors import DoesNotFitError, FirmwrightError, UnsupportedError
from firmwright.flows.measure.instruction_counts import (
    InstructionCounts,
    measure_instructions,
)
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.predict.cost_prediction import predict_instructions
from firmwright.pipeline import Compilation

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModeledRun:
    """Cycles of a run; published figures support `silicon_range`, None without any."""

    model: str
    board: str
    mode: str
    instructions: int
    modeled_cycles: int | None
    silicon_range: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted and executed instructions of one layer with the chosen schedule."""

    model: str
    board: str
    operator: int
    kind: str
    schedule: str
    predicted: int
    counted: int

    @property
    def error(self) -> float:
        return self.predicted / self.counted - 1


def _runs(
    models: Sequence[Path],
    boards: Sequence[str],
    modes: Sequence[str],
    *skipped: type[FirmwrightError],
) -> Iterator[tuple[str, str, str, Compilation, InstructionCounts]]:
    """Yield name, board, goal, compilation and counts, without those that fail.

    Errors `skipped` are logged.
    """
    for path in models:
        model = load_model(path)
        for board, mode in itertools.product(boards, modes):
            try:
                compiled = compile_for(model, board, optimize=mode)
                yield path.name, board, mode, compiled, measure_instructions(compiled)
            except skipped as error:
                log.warning("%s on %s: %s", path.name, board, error)


def measure_modeled_cycles(
    models: Sequence[Path], boards: Sequence[str], modes: Sequence[str]
) -> Iterator[ModeledRun]:
    """Yield a row for each model, board and goal, except for models that do not fit."""
    for name, board, mode, _, run in _runs(models, boards, modes, DoesNotFitError):
        total = (run.total.instructions, run.total.cycles, run.silicon_range)
        yield ModeledRun(name, board, mode, *total)


def compare_predictions(
    models: Sequence[Path], boards: Sequence[str]
) -> Iterator[Prediction]:
    """Yield a comparison for every layer of each model on each board, in that order."""
    skipped = (DoesNotFitError, UnsupportedError)
    for name, board, _, compiled, exact in _runs(
        models, boards, ["balanced"], *skipped
    ):
        predictions = predict_instructions(compiled)
        for op in compiled.summary.operators:
            counts = predictions[op.index], exact.operators[op.index].instructions
            yield Prediction(name, board, op.index, op.kind, op.schedule, *counts)


def median_error(rows: Sequence[Prediction]) -> float:
    return statistics.median(abs(row.error) for row in rows)


def worst_error(rows: Sequence[Prediction]) -> float:
    return max(abs(row.error) for row in rows)
