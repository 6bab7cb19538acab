"""Our own node tests, for supported operators without a test in the package `onnx`.

Each has the form of the package's tests: a model of one node, inputs, and the results
of the package's reference implementation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

import onnx
from onnx import TensorProto, helper, numpy_helper
from tests.extensions.tree_ensemble.test_tree_ensemble import (
    FEATURES,
    TREES,
    random_forest,
)
from tests.onnx.backend import NodeTest

Array = NDArray[Any]
ML = "ai.onnx.ml"
RNG = np.random.Generator(np.random.PCG64(38))
FLOATS = RNG.normal(size=(6, FEATURES)).astype(np.float32)
WHOLE = np.array([[3, -1, 4], [1, 5, -9]], np.int64)


def own_cases() -> Iterator[NodeTest]:
    """Yield all cases; the random numbers are seeded."""
    yield _case("cumsum", "CumSum", [FLOATS, _known(np.int64(1))], exclusive=1)
    yield _case("einsum", "Einsum", [FLOATS, FLOATS.T.copy()], equation="ij,jk->ik")
    image = FLOATS.reshape(1, 2, 3, FEATURES)
    norm = np.sqrt(np.square(image).sum(axis=(2, 3), keepdims=True))
    yield _case("global_lp_pool", "GlobalLpPool", [image], expected=[norm], p=2)
    line, depth = np.array([0.0, 2.5], np.float32), _known(np.int64(6))
    yield _case("one_hot", "OneHot", [WHOLE, depth, _known(line)], axis=-1)
    yield _case(
        "bit_cast", "BitCast", [WHOLE.astype(np.int32)], to=TensorProto.UINT32, opset=26
    )
    scale = np.linspace(0.5, 2, FEATURES, dtype=np.float32)
    rms = (
        FLOATS / np.sqrt(np.square(FLOATS).mean(axis=-1, keepdims=True) + 1e-5) * scale
    )
    yield _case(
        "simplified", "SimplifiedLayerNormalization", [FLOATS, scale], expected=[rms]
    )
    yield _loop()
    yield from _features()
    yield from _models()


def _features() -> Iterator[NodeTest]:
    places = _known(np.array([[0, 2]], np.int64))
    yield _case("extractor", "ArrayFeatureExtractor", [FLOATS, places], ML)
    yield _case("binarizer", "Binarizer", [FLOATS], ML, threshold=0.25)
    holes = FLOATS.copy()
    holes[1:3, 2] = np.nan
    values = [0.5, 1.5, 2.5, 3.5, 4.5]
    yield _case(
        "imputer",
        "Imputer",
        [holes],
        ML,
        imputed_value_floats=values,
        replaced_value_float=float("nan"),
    )
    joined = np.concatenate([FLOATS[:2], WHOLE[:, :2]], axis=1).astype(np.float32)
    sizes = {"inputdimensions": [FEATURES, 2]}
    inputs = [FLOATS[:2], WHOLE]
    yield _case(
        "vectorizer", "FeatureVectorizer", inputs, ML, expected=[joined], **sizes
    )
    labels = {
        "keys_int64s": [3, -9, 4],
        "values_floats": [0.5, 1.5, 7.0],
        "default_float": -2.0,
    }
    yield _case("label_encoder", "LabelEncoder", [WHOLE], ML, **labels)
    for norm in ("L1", "L2", "MAX"):
        yield _case(
            f"normalizer_{norm.lower()}", "Normalizer", [abs(FLOATS)], ML, norm=norm
        )
    yield _case(
        "one_hot_encoder",
        "OneHotEncoder",
        [WHOLE[0]],
        ML,
        cats_int64s=[4, 3, 8],
        zeros=1,
    )
    yield _case("scaler", "Scaler", [FLOATS], ML, offset=[0.5] * FEATURES, scale=values)


def _models() -> Iterator[NodeTest]:
    weights = RNG.normal(size=3 * FEATURES).astype(np.float32).tolist()
    yield _case(
        "linear_regressor",
        "LinearRegressor",
        [FLOATS],
        ML,
        coefficients=weights,
        intercepts=[0.5, -0.5, 0.25],
        targets=3,
    )
    yield _case(
        "linear_classifier",
        "LinearClassifier",
        [FLOATS],
        ML,
        outputs=2,
        coefficients=weights,
        intercepts=[0.5, -0.5, 0.25],
        classlabels_ints=[7, 1, 3],
        post_transform="SOFTMAX",
    )
    vectors = {
        "kernel_type": "RBF",
        "kernel_params": [0.25, 0.0, 0.0],
        "support_vectors": weights,
        "coefficients": [0.75, -0.5, -0.25],
        "rho": [0.125],
    }
    yield _case("svm_regressor", "SVMRegressor", [FLOATS], ML, n_supports=3, **vectors)
    yield _case(
        "svm_classifier",
        "SVMClassifier",
        [FLOATS],
        ML,
        outputs=2,
        classlabels_ints=[0, 1],
        vectors_per_class=[1, 2],
        **vectors,
    )
    yield _of_model("tree_regressor", random_forest(3, 1, False))
    classes = random_forest(
        6, 3, False, classlabels_int64s=[4, 0, 7], post_transform="SOFTMAX"
    )
    yield _of_model("tree_classifier", classes)
    yield _tree_ensemble()


def _tree_ensemble() -> NodeTest:
    return _case(
        "tree_ensemble",
        "TreeEnsemble",
        [FLOATS],
        ML,
        ml_opset=5,
        aggregate_function=1,
        **TREES,
    )


def _loop() -> NodeTest:
    """Three iterations that double a tensor and collect its earlier values."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["goes_on"]),
            helper.make_node("Add", ["held", "held"], ["doubled"]),
            helper.make_node("Identity", ["held"], ["kept"]),
        ],
        "round",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("held", TensorProto.FLOAT, FLOATS.shape),
        ],
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("doubled", TensorProto.FLOAT, FLOATS.shape),
            helper.make_tensor_value_info("kept", TensorProto.FLOAT, FLOATS.shape),
        ],
    )
    operands = [_known(np.int64(3)), _known(np.bool_(True)), FLOATS]
    # The package's implementation joins what is kept along an existing axis.
    history = np.stack([FLOATS, 2 * FLOATS, 4 * FLOATS])
    return _case(
        "loop", "Loop", operands, outputs=2, expected=[8 * FLOATS, history], body=body
    )


# ---- how they are made ---------------------------------------------------------------


def _known(value: Any) -> tuple[Array]:
    """An operand that is a constant of the model."""
    return (np.asarray(value),)


def _case(
    name: str,
    op: str,
    operands: list[Any],
    domain: str = "",
    outputs: int = 1,
    expected: list[Array] | None = None,
    opset: int = 18,
    ml_opset: int = 3,
    **attrs: Any,
) -> NodeTest:
    names = [f"x{k}" for k in range(len(operands))]
    results = [f"y{k}" for k in range(outputs)]
    feeds = {
        n: x for n, x in zip(names, operands, strict=True) if not isinstance(x, tuple)
    }
    held = [
        numpy_helper.from_array(x[0], n)
        for n, x in zip(names, operands, strict=True)
        if isinstance(x, tuple)
    ]
    graph = helper.make_graph(
        [helper.make_node(op, names, results, domain=domain, **attrs)],
        name,
        [
            helper.make_tensor_value_info(
                n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
            )
            for n, x in feeds.items()
        ],
        [helper.make_empty_tensor_value_info(n) for n in results],
        held,
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(ML, ml_opset)]
    model = helper.make_model(graph, opset_imports=opsets)
    return _with_outputs(name, model, feeds, expected)


def _of_model(name: str, data: bytes) -> NodeTest:
    model = onnx.load_from_string(data)
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = RNG.normal(size=shape).astype(np.float32)
    return _with_outputs(name, model, {model.graph.input[0].name: x})


def _with_outputs(
    name: str, model: Any, feeds: dict[str, Array], expected: list[Array] | None = None
) -> NodeTest:
    """Make a case; `expected` replaces missing or wrong results of the reference."""
    outputs = expected or ReferenceEvaluator(model).run(None, feeds)
    data = bytes(model.SerializeToString())
    names, inputs = tuple(feeds), tuple(feeds.values())
    return NodeTest(f"own_{name}", data, names, inputs, tuple(outputs), 1e-3, 1e-5)
