"""The accuracy of a model and its firmware on a data set, and the HTML of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from firmwright.base.display_names import display_name
from firmwright.report.checked_outputs import CheckedOutputs
from firmwright.report.page_template import render_report_template

Metric = Literal["classification", "binary", "anomaly", "regression"]
METRICS: tuple[Metric, ...] = get_args(Metric)
MATRIX_CLASSES = 20
"""With more classes, the most frequent confusions are shown instead of the matrix."""
_TITLES = {"top1": "top-1", "top5": "top-5", "auc": "AUC"}
"""The titles of figures that are not their names with spaces."""
_PERCENTAGES = ("top1", "top5", "same_class")


_CLIPPED_MANY = 0.01
_CLIPPING_DB = 3.0
"""Clipping causes more than half of the error if the rest has that much less noise."""
_BAD_DB = 20.0
"""A layer with less signal than that loses classes."""
_CLIPPING_LAYERS = 5
"""The number of layers whose clipping is explained, the worst first."""


@dataclass(frozen=True, slots=True)
class LayerAccuracy:
    """The error of one operator's result in comparison with the float model.

    `sqnr_db` is the ratio of signal to quantization noise in decibels, infinite if
    nothing differs; `largest` is the largest absolute value of the float model.

    `value_range` are the smallest and the largest real value that the quantized result
    can have, None if it is unknown; `float_range` are those that the float model has.
    `clipped` counts values of the float model that are outside of `value_range` by more
    than a step, and `unclipped_sqnr_db` is the ratio without these values. `index` is
    the operator's place in the order of the float model.
    """

    name: str
    op: str
    values: int
    sqnr_db: float
    mean_abs_error: float
    max_abs_error: float
    largest: float
    value_range: tuple[float, float] | None = None
    float_range: tuple[float, float] | None = None
    clipped: int = 0
    unclipped_sqnr_db: float | None = None
    index: int = 0
    shape: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        """The name, or kind, number and shape if the name is a long one."""
        return display_name(self.name, self.op, self.index, self.shape)

    @property
    def clipped_share(self) -> str:
        return format_share(self.clipped, self.values) if self.clipped else ""

    @property
    def loses_by_clipping(self) -> bool:
        """Whether the clipped values cause most of the error."""
        rest = self.unclipped_sqnr_db
        return rest is not None and rest - self.sqnr_db > _CLIPPING_DB

    @property
    def clipping(self) -> str:
        """The explanation if many values clip or cause most of the error, else ""."""
        is_many = self.clipped > _CLIPPED_MANY * self.values
        ranges = self.value_range, self.float_range
        if None in ranges or not (is_many or self.loses_by_clipping):
            return ""
        calibrated, floats = (
            f"{ends[0]:.3g} to {ends[1]:.3g}" for ends in ranges if ends
        )
        text = (
            f"{self.clipped_share} of the values clip: the float model's, {floats}, "
            f"are outside of the calibrated range, {calibrated}."
        )
        if self.loses_by_clipping:
            text += (
                f" Without them the SQNR is {self.unclipped_sqnr_db:.1f} dB instead of "
                f"{self.sqnr_db:.1f} dB."
            )
        return text


def format_share(count: int, total: int) -> str:
    share = 100 * count / total
    return f"{share:.1f} %" if share >= 0.1 else "less than 0.1 %"


def describe_clipping(layers: Sequence[LayerAccuracy]) -> tuple[tuple[str, str], ...]:
    """Return the labels and explanations of the worst layers with clipped values."""
    found = [(layer.label, layer.clipping) for layer in layers if layer.clipping]
    return tuple(found[:_CLIPPING_LAYERS])


def first_bad_layer(layers: Sequence[LayerAccuracy]) -> LayerAccuracy | None:
    """Return the first layer in the model's order that has much noise, if any has."""
    bad = [layer for layer in layers if layer.sqnr_db < _BAD_DB]
    return min(bad, key=lambda layer: layer.index, default=None)


def describe_first_loss(layers: Sequence[LayerAccuracy]) -> str:
    """Return a sentence about the layer at which the loss begins, "" without loss."""
    layer = first_bad_layer(layers)
    if layer is None:
        return ""
    return (
        f"{layer.label} is the first below {_BAD_DB:.0f} dB in the order "
        "of the model; later layers have its noise, too."
    )


@dataclass(frozen=True, slots=True)
class RunScores:
    """The figures of one run.

    `figures` has those that apply of top1, top5, auc, mean_abs_error and rms_error.
    `output_difference` is the mean absolute difference from the first run's outputs,
    `same_class` the share of samples with its class.
    """

    what: str
    runtime: str
    figures: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Confusion:
    """The number of samples with this label and this predicted class."""

    label: int
    predicted: int
    count: int


@dataclass(frozen=True, slots=True)
class ChangedSample:
    """A sample with different classes in the first run and in the firmware."""

    name: str
    label: int | None
    first: int
    firmware: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The runs of the float model (if given), the model's runtime, and the firmware.

    `mismatches` is the number of outputs of the firmware that differ from the model's
    runtime. `confusions` are the firmware's, most frequent first. `layers` compares the
    model with the float model over `compared` samples, worst first. `warnings` concern
    the values of the samples.
    """

    model: str
    board: str
    data: str
    samples: int
    metric: Metric
    is_labeled: bool
    classes: tuple[str, ...]
    runs: tuple[RunScores, ...]
    mismatches: int
    confusions: tuple[Confusion, ...] = field(default=(), repr=False)
    changed: tuple[ChangedSample, ...] = field(default=(), repr=False)
    compared: int = 0
    layers: tuple[LayerAccuracy, ...] = field(default=(), repr=False)
    warnings: tuple[str, ...] = ()

    @property
    def has_matrix(self) -> bool:
        return bool(self.confusions) and len(self.classes) <= MATRIX_CLASSES

    @property
    def has_clipping(self) -> bool:
        return any(layer.clipped for layer in self.layers)

    @property
    def clipping(self) -> tuple[tuple[str, str], ...]:
        """The labels and explanations of the worst layers with clipped values."""
        return describe_clipping(self.layers)

    @property
    def first_loss(self) -> str:
        return describe_first_loss(self.layers)

    @property
    def errors(self) -> tuple[Confusion, ...]:
        return tuple(item for item in self.confusions if item.label != item.predicted)

    def class_name(self, index: int | None) -> str:
        return "–" if index is None else self.classes[index]

    def confusion_matrix(self) -> list[list[int]]:
        """Return the number of samples by label and predicted class."""
        matrix = [[0] * len(self.classes) for _ in self.classes]
        for item in self.confusions:
            matrix[item.label][item.predicted] = item.count
        return matrix

    def table(self) -> tuple[list[str], list[list[str]]]:
        return format_scores(self.runs)

    def _repr_html_(self) -> str:
        return render_evaluation(self, "evaluation.html.j2")


def format_scores(runs: Sequence[RunScores]) -> tuple[list[str], list[list[str]]]:
    """Return the titles and the rows of a table of the figures."""
    names = list(runs[0].figures)
    titles = ["", "by"]
    for name in names:
        titles.append(_TITLES.get(name, name.replace("_", " ")))
    rows: list[list[str]] = []
    for run in runs:
        figures = [_figure(name, run.figures[name]) for name in names]
        rows.append([run.what, run.runtime, *figures])
    return titles, rows


def _figure(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    if name in _PERCENTAGES:
        return f"{100 * value:.2f} %"
    return f"{value:.4f}" if name == "auc" else f"{value:.4g}"


def render_evaluation(
    evaluation: Evaluation,
    template: str = "evaluation_page.html.j2",
    check: CheckedOutputs | None = None,
) -> str:
    """Return an HTML page, or only its section, which a build report contains too.

    The page tells by `check` when and by which command it was made.
    """
    return render_report_template(template, evaluation=evaluation, check=check)
