"""Models of scikit-learn (trees, linear, SVM) compared with ONNX Runtime."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from firmwright.base.errors import UnsupportedError
from firmwright.frontends.onnx import preprocess_model
from firmwright.oracle.reference_runner import run_reference
from firmwright.oracle.reference_worker import OnnxRuntimeSession
from tests.onnx.onnx_models import Net
from tests.onnx.test_nets import entry_of, imported, results


def learned(kind: str) -> Any:
    """Return a fitted estimator of scikit-learn, and whether it is a classifier."""
    pytest.importorskip(
        "skl2onnx", reason="scikit-learn and skl2onnx are not installed"
    )
    from sklearn import (
        cluster,
        ensemble,
        linear_model,
        naive_bayes,
        neighbors,
        neural_network,
        svm,
    )
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler

    return {
        "forest": lambda: ensemble.RandomForestClassifier(
            7, max_depth=4, random_state=0
        ),
        "regression_forest": lambda: ensemble.RandomForestRegressor(
            5, max_depth=4, random_state=0
        ),
        "adaptive": lambda: ensemble.AdaBoostClassifier(n_estimators=5, random_state=0),
        "boosting": lambda: ensemble.GradientBoostingClassifier(
            n_estimators=4, random_state=0
        ),
        "logistic": lambda: make_pipeline(
            SimpleImputer(), StandardScaler(), linear_model.LogisticRegression()
        ),
        "linear": lambda: make_pipeline(
            MinMaxScaler(), Normalizer(), linear_model.LinearRegression()
        ),
        "vectors": lambda: svm.SVC(random_state=0),
        "vector_probabilities": lambda: svm.SVC(probability=True, random_state=0),
        "vector_regression": lambda: svm.SVR(kernel="poly"),
        "bayes": naive_bayes.GaussianNB,
        "means": lambda: cluster.KMeans(3, n_init=1, random_state=0),
        "neighbors": lambda: neighbors.KNeighborsClassifier(5),
        "perceptron": lambda: neural_network.MLPClassifier(
            (8,), max_iter=20, random_state=0
        ),
    }[kind]()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("classes", [2, 3, "names"])
@pytest.mark.parametrize(
    "kind",
    [
        "forest",
        "regression_forest",
        "adaptive",
        "boosting",
        "logistic",
        "linear",
        "vectors",
        "vector_probabilities",
        "vector_regression",
        "bayes",
        "means",
        "neighbors",
        "perceptron",
    ],
)
def test_scikit_learn_models_match_onnx_runtime(kind: str, classes: Any) -> None:
    if classes == "names" and kind not in ("forest", "logistic"):
        pytest.skip("labels are numbers here")
    model = learned(kind)
    from skl2onnx import to_onnx

    rng = np.random.Generator(np.random.PCG64(2))
    x = rng.normal(size=(300 if kind == "neighbors" else 90, 4)).astype(np.float32)
    y: Any = np.digitize(
        x[:, 0] + x[:, 1] * x[:, 2], [0.0] if classes == 2 else [-0.5, 0.5]
    )
    if classes == "names":
        y = np.array(["low", "middle", "high"])[y]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = to_onnx(model.fit(x, y), x[:1]).SerializeToString()
    module = imported(data)
    whole = preprocess_model(data, "net.onnx")
    name = entry_of(module).params[0].name
    samples = [{name: row[None]} for row in x[:8]]
    for sample, expected in zip(
        samples, run_reference(whole, samples, "onnxruntime").outputs, strict=True
    ):
        got = results(module, sample)
        for key, array in expected.items():
            np.testing.assert_allclose(
                got[key], array.reshape(got[key].shape), atol=2e-6
            )


def vectors(transform: str, counts: Sequence[int], has_probabilities: bool) -> bytes:
    """Return a support vector machine with vectors of 2 features for each class."""
    net, total = Net(), sum(counts)
    pairs = len(counts) * (len(counts) - 1) // 2

    def numbers(count: int) -> list[float]:
        return net.rng.normal(size=count).astype(np.float32).tolist()

    attrs: dict[str, Any] = {
        "classlabels_ints": list(range(len(counts))),
        "coefficients": numbers(total * (len(counts) - 1)),
        "kernel_params": [0.0, 0.0, 0.0],
        "kernel_type": "LINEAR",
        "post_transform": transform,
        "rho": numbers(pairs),
        "support_vectors": numbers(2 * total),
        "vectors_per_class": list(counts),
    }
    if has_probabilities:
        attrs |= {"prob_a": numbers(pairs), "prob_b": numbers(pairs)}
    x = net.input("x", (3, 2))
    machine = net.node("SVMClassifier", x, outputs=2, domain="ai.onnx.ml", **attrs)
    return net.model(*machine)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("counts", [(2, 3), (2, 3, 1)])
def test_scores_of_vectors_are_transformed(
    transform: str, counts: tuple[int, ...]
) -> None:
    x = np.random.Generator(np.random.PCG64(3)).normal(size=(3, 2)).astype(np.float32)
    for has_probabilities in (False, True):
        data = vectors(transform, counts, has_probabilities)
        if counts == (2, 3) and "SOFTMAX" in transform and not has_probabilities:
            with pytest.raises(UnsupportedError, match="two classes through a softmax"):
                imported(data)
            continue
        expected = OnnxRuntimeSession(data, layers=False).run([x])
        got = results(imported(data), {"x": x}).values()
        for mine, want in zip(got, expected, strict=True):
            np.testing.assert_allclose(mine, np.asarray(want), atol=2e-6)
