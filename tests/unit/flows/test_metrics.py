"""Figures are right where countable, and equal scikit-learn's if it is installed."""

import numpy as np
import pytest

from firmwright.base.errors import UsageError
from firmwright.flows.samples.labeled_data import Dataset
from firmwright.flows.samples.metrics import (
    ModelRun,
    area_under_curve,
    make_task,
    score_runs,
    top_k_accuracy,
)


def test_area_under_curve_counts_ties_half() -> None:
    scores = np.array([[0.1], [0.5], [0.5], [0.9]])
    assert area_under_curve(scores, np.array([0, 0, 1, 1])) == 0.875
    assert area_under_curve(scores, np.array([1, 1, 1, 1])) is None
    classes = np.array([[0.9, 0.1, 0], [0.2, 0.8, 0], [0.6, 0.4, 0]])
    assert area_under_curve(classes, np.array([0, 1, 0])) == 1.0


def test_equal_scores_favor_the_lowest_class() -> None:
    scores = np.array([[0.9, 0.1, 0], [0.5, 0.5, 0], [0.6, 0.4, 0.5]])
    assert top_k_accuracy(scores, np.array([0, 1, 1])) == pytest.approx(1 / 3)
    assert top_k_accuracy(scores, np.array([0, 1, 1]), 2) == pytest.approx(2 / 3)
    assert top_k_accuracy(scores, np.array([0, 1, 1]), 3) == 1


@pytest.mark.parametrize("classes", [2, 7])
def test_figures_equal_those_of_scikit_learn(classes: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(classes)
    labels = rng.permutation(np.arange(60) % classes)
    scores = rng.dirichlet(np.ones(classes), 60) + np.eye(classes)[labels] * 0.2
    scores /= scores.sum(axis=1, keepdims=True)
    expected = metrics.roc_auc_score(
        labels,
        scores[:, 1] if classes == 2 else scores,
        multi_class="ovr",
        average="macro",
    )
    assert area_under_curve(scores, labels) == pytest.approx(expected)
    assert top_k_accuracy(scores, labels) == metrics.accuracy_score(
        labels, scores.argmax(axis=1)
    )
    if classes > 5:
        expected = metrics.top_k_accuracy_score(labels, scores, k=5)
        assert top_k_accuracy(scores, labels, 5) == pytest.approx(expected)


def data(labels: object, classes: tuple[str, ...] = ()) -> Dataset:
    values = None if labels is None else np.asarray(labels)
    count = 3 if values is None else len(values)
    return Dataset("here", ({},) * count, ("",) * count, values, classes)


@pytest.mark.parametrize(
    ("labels", "shapes", "metric"),
    [
        ([0, 2, 1], ((1, 8), (1, 3)), "classification"),
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], ((1, 8), (1, 3)), "classification"),
        ([0.0, 2.0, 1.0], ((1, 8), (1, 3)), "classification"),
        (np.eye(3), ((1, 8), (1, 3)), "classification"),
        ([0, 1, 1], ((1, 8), (1, 1)), "binary"),
        ([0, 1, 1], ((1, 8), (1, 8)), "anomaly"),
        ([0.5, 1.25, 3], ((1, 8), (1, 1)), "regression"),
        (None, ((1, 8), (1, 3)), "classification"),
        (None, ((1, 8), (1, 4, 4, 2)), "regression"),
    ],
)
def test_labels_and_shapes_suggest_the_metric(
    labels: object, shapes: tuple[tuple[int, ...], tuple[int, ...]], metric: str
) -> None:
    task = make_task(data(labels), *shapes)
    assert task.metric == metric
    if labels is not None and metric == "classification":
        assert task.labels is not None
        assert sorted(task.labels) == [0, 1, 2]


@pytest.mark.parametrize(
    ("labels", "classes", "output", "metric", "what"),
    [
        (
            [1, 3, 2],
            (),
            3,
            "",
            r"a label is 3, but the output has 3 classes, 0 to 2\. Try: count",
        ),
        ([0, -1, 2], (), 3, "", r"the labels are int64 \[3\], the smallest -1"),
        (
            [0, 1, 2],
            ("a", "b"),
            3,
            "",
            r"there are 2 classes \(a, b\), but the output has 3",
        ),
        ([0.5, 1, 2], (), 3, "", r"the labels are \[3\], but an output has 3 values"),
        ([0.5, 1, 2], (), 3, "classification", r"the labels are float64 \[3\]"),
        (
            [0, 1, 1],
            (),
            3,
            "binary",
            "the metric binary needs an output of 1 values; this one has",
        ),
        ([0, 1, 1], (), 3, "accuracy", "accuracy is not a metric"),
    ],
)
def test_labels_that_do_not_fit_are_refused(
    labels: list[float], classes: tuple[str, ...], output: int, metric: str, what: str
) -> None:
    with pytest.raises(UsageError, match=what):
        make_task(data(labels, classes), (1, 8), (1, output), metric)


def figures(
    outputs: object, labels: object, metric: str = ""
) -> dict[str, float | None]:
    values = np.asarray(outputs, float)
    first = ModelRun("float model", "a", np.zeros((len(values), 1, 4)), values)
    other = ModelRun("model", "b", first.inputs, values + 0.25)
    task = make_task(data(labels), (1, 4), values.shape[1:], metric)
    return dict(score_runs([first, other], task)[1].figures)


def test_a_regression_has_errors() -> None:
    assert figures([[1.0], [2.0]], [1.5, 2.25]) == {
        "mean_abs_error": pytest.approx(0.125),
        "rms_error": pytest.approx(0.03125**0.5),
        "output_difference": 0.25,
    }


def test_a_binary_classifier_changes_class_at_one_half() -> None:
    assert figures([[0.1], [0.3], [0.8], [0.4]], [0, 1, 1, 0]) == {
        "top1": 0.75,
        "auc": 0.75,
        "same_class": 0.5,
        "output_difference": 0.25,
    }


def test_the_score_of_an_anomaly_is_the_mean_square_difference_from_the_input() -> None:
    rows = [[[0, 0, 0, 2]], [[1, 1, 1, 1]], [[0, 0, 0, 1]]]
    run = ModelRun("model", "a", np.zeros((3, 1, 4)), np.asarray(rows, float))
    np.testing.assert_array_equal(run.scores("anomaly"), [[1], [1], [0.25]])
    assert figures(rows, [1, 1, 0])["auc"] == 1
