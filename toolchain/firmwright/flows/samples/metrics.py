"""Quality figures of a model's results on a data set."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import UsageError
from firmwright.flows.samples.labeled_data import Dataset
from firmwright.report.evaluation import METRICS, Metric, RunScores

Shape = tuple[int, ...]
METRICS_HINT = f"the metrics are {', '.join(METRICS)}."


@dataclass(frozen=True, slots=True)
class Task:
    """A metric with its labels: class indices, or the values of a regression."""

    metric: Metric
    labels: Array | None
    classes: tuple[str, ...] = ()

    @property
    def is_classifying(self) -> bool:
        return self.metric in ("classification", "binary")


@dataclass(frozen=True, slots=True)
class ModelRun:
    """Real values of the first input and one output, with a leading sample axis."""

    what: str
    runtime: str
    inputs: Array
    outputs: Array

    def scores(self, metric: Metric) -> Array:
        """Return each sample's row of scores; a binary score gets a column per class.

        The anomaly score is the mean square difference of output and input.
        """
        rows = self.outputs.reshape(len(self.outputs), -1).astype(np.float64)
        if metric == "binary":
            return np.hstack([1 - rows, rows])
        if metric == "anomaly":
            squares = np.square(rows - self.inputs.reshape(rows.shape))
            rows = squares.mean(axis=1, keepdims=True)
        return rows


def make_task(
    data: Dataset, input_shape: Shape, output_shape: Shape, metric: str = ""
) -> Task:
    """Return the task with `metric` or that of the labels; UsageError if unsuitable."""
    labels = data.labels
    values = math.prod(output_shape)
    is_single = labels is not None and labels.size == len(labels)
    if labels is not None and is_single and values > 1 and _is_whole(labels):
        labels = labels.astype(np.int64)  # Class indices are often stored as floats.
    metric = metric or _suggested_metric(labels, input_shape, output_shape)
    if metric not in METRICS:
        raise UsageError(f"{metric} is not a metric.", hint=METRICS_HINT)
    needed = {"binary": 1, "anomaly": math.prod(input_shape)}.get(metric, values)
    if values != needed:
        what = (
            f"the metric {metric} needs an output of {needed} values; this one has "
            f"{values}."
        )
        raise UsageError(what, hint=METRICS_HINT)
    if metric == "regression":
        return _regression(labels, values, data)
    count = 2 if metric in ("binary", "anomaly") else values
    if data.classes and len(data.classes) != count:
        named = ", ".join(data.classes)
        what = (
            f"there are {len(data.classes)} classes ({named}), but the output has "
            f"{count}."
        )
        hint = "name all classes in the model's order: --classes NAME,NAME,..."
        raise UsageError(what, where=data.where, hint=hint)
    indices = None if labels is None else _class_indices(labels, count, data.where)
    names = data.classes or tuple(map(str, range(count)))
    return Task(cast(Metric, metric), indices, names)


def _regression(labels: Array | None, values: int, data: Dataset) -> Task:
    """Return the task with a label for each of the output's `values`."""
    if labels is None:
        return Task("regression", None)
    if labels.size != values * len(data.samples):
        shape = list(labels.shape)
        what = f"the labels are {shape}, but an output has {values} values."
        raise UsageError(what, where=data.where, hint="give a value for each output.")
    return Task("regression", labels.reshape(-1, values))


def _suggested_metric(
    labels: Array | None, input_shape: Shape, output_shape: Shape
) -> Metric:
    """Return the metric that labels and shapes suggest."""
    values = math.prod(output_shape)
    if labels is not None and labels.dtype.kind == "f" and not _is_one_hot(labels):
        return "regression"
    if labels is not None and values > 1 and input_shape == output_shape:
        return "anomaly"
    if values == 1:
        return "regression" if labels is None else "binary"
    return "classification" if values == output_shape[-1] else "regression"


def _is_whole(labels: Array) -> bool:
    return labels.dtype.kind == "f" and bool(np.all(labels == np.rint(labels)))


def _is_one_hot(labels: Array) -> bool:
    """Return whether each row of labels has a 1 for its class and 0 for the others."""
    is_table = labels.ndim == 2 and labels.shape[1] > 1
    if not is_table or not set(np.unique(labels)) <= {0, 1}:
        return False
    return bool(np.all(labels.sum(axis=1) == 1))


def _class_indices(labels: Array, count: int, where: str) -> Array:
    """Return the class of each sample; UsageError for labels that are no classes."""
    if _is_one_hot(labels):
        labels = labels.argmax(axis=1)
    if labels.size != len(labels) or labels.dtype.kind not in "iub" or labels.min() < 0:
        what = (
            f"the labels are {labels.dtype} {list(labels.shape)}, the smallest "
            f"{labels.min()}."
        )
        hint = (
            "give one class index for each sample, counted from 0, or --metric "
            "regression."
        )
        raise UsageError(what, where=where, hint=hint)
    if labels.max() >= count:
        what = (
            f"a label is {labels.max()}, but the output has {count} classes, 0 to "
            f"{count - 1}."
        )
        hint = ""
        if labels.min() == 1 and labels.max() == count:
            hint = "count labels from 0."
        raise UsageError(what, where=where, hint=hint)
    return labels.reshape(-1).astype(np.int64)


def score_runs(runs: Sequence[ModelRun], task: Task) -> tuple[RunScores, ...]:
    scores: list[RunScores] = []
    for run in runs:
        scores.append(RunScores(run.what, run.runtime, _figures(run, runs[0], task)))
    return tuple(scores)


def _figures(run: ModelRun, first: ModelRun, task: Task) -> dict[str, float | None]:
    """Return the figures of a run that apply to the task, in the tables' order."""
    labels = task.labels
    scores = run.scores(task.metric)
    figures: dict[str, float | None] = {}
    if labels is not None and task.is_classifying:
        figures["top1"] = top_k_accuracy(scores, labels)
        if scores.shape[1] > 5:
            figures["top5"] = top_k_accuracy(scores, labels, 5)
    if labels is not None and task.metric == "regression":
        figures["mean_abs_error"] = float(np.abs(scores - labels).mean())
        figures["rms_error"] = float(np.sqrt(np.square(scores - labels).mean()))
    elif labels is not None:
        figures["auc"] = area_under_curve(scores, labels)
    if task.is_classifying:
        same = scores.argmax(axis=1) == first.scores(task.metric).argmax(axis=1)
        figures["same_class"] = float(np.mean(same))
    figures["output_difference"] = float(np.abs(run.outputs - first.outputs).mean())
    return figures


def top_k_accuracy(scores: Array, labels: Array, k: int = 1) -> float:
    """Return the share of labels in the k best classes; of equals, the first wins."""
    best = np.argsort(-scores.astype(np.float64), axis=1, kind="stable")[:, :k]
    return float(np.mean(np.any(best == labels[:, None], axis=1)))


def area_under_curve(scores: Array, labels: Array) -> float | None:
    """Return the area under the ROC curve, or None if it is undefined.

    Of several classes, it is the mean of those with both positive and negative samples.
    """
    if scores.shape[1] == 1:
        return _curve(scores[:, 0], labels != 0)
    areas: list[float] = []
    for index in range(scores.shape[1]):
        area = _curve(scores[:, index], labels == index)
        if area is not None:
            areas.append(area)
    return statistics.fmean(areas) if areas else None


def _curve(values: Array, positive: Array) -> float | None:
    """Return the share of pairs with the positive sample ahead; ties count half."""
    high = values[positive]
    low = np.sort(values[~positive])
    if not len(high) or not len(low):
        return None
    # Each pair counts twice if its positive sample is ahead, and once if both are
    # equal.
    smaller = np.searchsorted(low, high, "left").sum()
    not_greater = np.searchsorted(low, high, "right").sum()
    return float((smaller + not_greater) / (2 * len(high) * len(low)))
