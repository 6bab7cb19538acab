"""Accuracy of the cost model: predicted and exact counts of the layers that each board can run."""

import logging
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from firmwright.base.errors import DoesNotFitError, UnsupportedError
from firmwright.flows.compilation import compile_for
from firmwright.flows.cost_prediction import predict_instructions
from firmwright.flows.instruction_counts import measure_instructions
from firmwright.flows.model import load_model

log = logging.getLogger(__name__)


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


def compare_predictions(
    models: Sequence[Path], boards: Sequence[str], optimize: str = "balanced"
) -> Iterator[Prediction]:
    """Yield a comparison for every layer of each model on each board, in that order."""
    for path in models:
        model = load_model(path)
        for board in boards:
            try:
                compiled = compile_for(model, board, optimize=optimize)
                exact = measure_instructions(compiled)
            except (DoesNotFitError, UnsupportedError) as error:
                log.warning("%s on %s: %s", path.name, board, error)
                continue
            predictions = predict_instructions(compiled)
            for op in compiled.summary.operators:
                counted = exact.operators[op.index].instructions
                predicted = predictions[op.index]
                yield Prediction(
                    path.name, board, op.index, op.kind, op.schedule, predicted, counted
                )


def median_error(rows: Sequence[Prediction]) -> float:
    return statistics.median(abs(row.error) for row in rows)


def worst_error(rows: Sequence[Prediction]) -> float:
    return max(abs(row.error) for row in rows)
