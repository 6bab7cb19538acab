"""Random pipelines of scikit-learn, fitted to random data, as ONNX files."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.onnx.onnx_models import Array

ROWS = 240


@dataclass(frozen=True, slots=True)
class Data:
    """Rows of features with their classes and a value to regress."""

    rows: Array
    classes: Array
    values: Array


Maker = Callable[[np.random.Generator], Any]


def random_data(rng: np.random.Generator) -> Data:
    features, count = int(rng.integers(2, 8)), int(rng.integers(2, 5))
    rows = rng.normal(size=(ROWS, features)).astype(np.float32)
    scores = rows @ rng.normal(size=(features, count)) + rng.normal(size=(ROWS, count))
    classes = scores.argmax(1)
    classes[:count] = np.arange(count)
    return Data(rows, classes, scores[:, 0].astype(np.float32))


def steps() -> dict[str, Maker]:
    """Return the transformations that may precede an estimator."""
    from sklearn import decomposition, feature_selection, impute, preprocessing

    return {
        "standard": lambda rng: preprocessing.StandardScaler(),
        "min_max": lambda rng: preprocessing.MinMaxScaler(clip=bool(rng.integers(2))),
        "max_abs": lambda rng: preprocessing.MaxAbsScaler(),
        "robust": lambda rng: preprocessing.RobustScaler(),
        "norm": lambda rng: preprocessing.Normalizer(
            str(rng.choice(["l1", "l2", "max"]))
        ),
        "impute": lambda rng: impute.SimpleImputer(),
        "binary": lambda rng: preprocessing.Binarizer(threshold=0.2),
        "powers": lambda rng: preprocessing.PolynomialFeatures(2),
        "bins": lambda rng: preprocessing.KBinsDiscretizer(3, encode="ordinal"),
        "axes": lambda rng: decomposition.PCA(2),
        "variance": lambda rng: feature_selection.VarianceThreshold(),
        "best": lambda rng: feature_selection.SelectKBest(k=2),
    }


def classifiers() -> dict[str, Maker]:
    from sklearn import (
        discriminant_analysis,
        ensemble,
        linear_model,
        naive_bayes,
        neighbors,
        neural_network,
        svm,
        tree,
    )

    def depth(rng: np.random.Generator) -> dict[str, int]:
        return {"max_depth": int(rng.integers(1, 5)), "random_state": 0}

    def forest(kind: Any) -> Maker:
        return lambda rng: kind(int(rng.integers(1, 7)), **depth(rng))

    kernels = ["linear", "rbf", "poly", "sigmoid"]
    return {
        "tree": lambda rng: tree.DecisionTreeClassifier(**depth(rng)),
        "forest": forest(ensemble.RandomForestClassifier),
        "extra": forest(ensemble.ExtraTreesClassifier),
        "boosting": lambda rng: ensemble.GradientBoostingClassifier(
            n_estimators=int(rng.integers(1, 5)), **depth(rng)
        ),
        "adaptive": lambda rng: ensemble.AdaBoostClassifier(
            n_estimators=int(rng.integers(1, 5)), random_state=0
        ),
        "logistic": lambda rng: linear_model.LogisticRegression(),
        "ridge": lambda rng: linear_model.RidgeClassifier(),
        "descent": lambda rng: linear_model.SGDClassifier(random_state=0),
        "vectors": lambda rng: svm.SVC(kernel=str(rng.choice(kernels))),
        "neighbors": lambda rng: neighbors.KNeighborsClassifier(
            int(rng.choice([1, 3, 5])), weights=str(rng.choice(["uniform", "distance"]))
        ),
        "bayes": lambda rng: naive_bayes.GaussianNB(),
        "bernoulli": lambda rng: naive_bayes.BernoulliNB(),
        "perceptron": lambda rng: neural_network.MLPClassifier(
            hidden_layer_sizes=int(rng.integers(2, 9)),
            activation=str(rng.choice(["relu", "tanh", "logistic", "identity"])),
            max_iter=20,
            random_state=0,
        ),
        "discriminant": lambda rng: discriminant_analysis.LinearDiscriminantAnalysis(),
        "quadratic": lambda rng: discriminant_analysis.QuadraticDiscriminantAnalysis(
            reg_param=0.1
        ),
    }


def regressors() -> dict[str, Maker]:
    from sklearn import ensemble, linear_model, neighbors, neural_network, svm, tree

    def depth(rng: np.random.Generator) -> dict[str, int]:
        return {"max_depth": int(rng.integers(1, 5)), "random_state": 0}

    return {
        "tree": lambda rng: tree.DecisionTreeRegressor(**depth(rng)),
        "forest": lambda rng: ensemble.RandomForestRegressor(
            int(rng.integers(1, 7)), **depth(rng)
        ),
        "boosting": lambda rng: ensemble.GradientBoostingRegressor(
            n_estimators=int(rng.integers(1, 5)), **depth(rng)
        ),
        "linear": lambda rng: linear_model.LinearRegression(),
        "ridge": lambda rng: linear_model.Ridge(),
        "lasso": lambda rng: linear_model.Lasso(0.1),
        "poisson": lambda rng: linear_model.TweedieRegressor(power=0),
        "vectors": lambda rng: svm.SVR(kernel=str(rng.choice(["rbf", "poly"]))),
        "neighbors": lambda rng: neighbors.KNeighborsRegressor(3),
        "perceptron": lambda rng: neural_network.MLPRegressor(
            hidden_layer_sizes=int(rng.integers(2, 9)), max_iter=20, random_state=0
        ),
    }


def random_classical_model(seed: int) -> bytes:
    """Return the fitted pipeline of the seed, for one row of features."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType
    from sklearn.pipeline import make_pipeline

    rng = np.random.Generator(np.random.PCG64(seed))
    data, known = random_data(rng), steps()
    names = rng.choice(list(known), int(rng.integers(0, 3)), replace=False)
    is_classifier = bool(rng.random() < 0.7)
    table = classifiers() if is_classifier else regressors()
    estimator = table[str(rng.choice(list(table)))](rng)
    pipeline = make_pipeline(*(known[str(name)](rng) for name in names), estimator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline.fit(data.rows, data.classes if is_classifier else data.values)
        kind = FloatTensorType([1, data.rows.shape[1]])
        options = {id(estimator): {"zipmap": False}} if is_classifier else None
        model = convert_sklearn(
            pipeline,
            initial_types=[("rows", kind)],
            options=options,
            target_opset={"": int(rng.integers(12, 22)), "ai.onnx.ml": 3},
        )
    return bytes(model.SerializeToString())
