"""TfIdfVectorizer, Det and MelWeightMatrix equal ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX needs the package onnx")
pytest.importorskip("onnxruntime", reason="the expected values come from ONNX Runtime")

from firmwright.base.errors import UnsupportedError
from firmwright.oracle.reference_worker import OnnxRuntimeSession
from onnx import TensorProto
from tests.onnx.onnx_models import Array, Net
from tests.onnx.test_nets import imported, results


def _check(net: Net, y: str, inputs: dict[str, Array]) -> None:
    data = net.model(y)
    (want,) = OnnxRuntimeSession(data, layers=False).run(list(inputs.values()))
    (got,) = results(imported(data), inputs).values()
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("seed", range(12))
def test_counts_of_ngrams_equal_onnx_runtime(seed: int) -> None:
    net = Net(seed)
    rng = net.rng
    samples, items = rng.integers(1, [4, 12]).tolist()
    pools = [
        np.unique(rng.integers(0, 4, (int(rng.integers(1, 5)), n)), axis=0)
        for n in (1, 2, 3)
    ]
    sizes = [pool.size for pool in pools]
    count = sum(map(len, pools))
    columns = rng.permutation(count + seed % 2)[:count]
    attrs: dict[str, Any] = {
        "mode": ("TF", "IDF", "TFIDF")[seed % 3],
        "min_gram_length": 1 + seed % 2,
        "max_gram_length": 2 + seed % 4 // 2,
        "max_skip_count": int(rng.integers(0, 4)),
        "ngram_counts": np.cumsum([0, *sizes[:-1]]).tolist(),
        "ngram_indexes": columns.tolist(),
        "pool_int64s": np.concatenate([pool.reshape(-1) for pool in pools]).tolist(),
    }
    if attrs["mode"] != "TF":
        attrs["weights"] = rng.uniform(0.5, 2, count).tolist()
    dtype = (TensorProto.INT32, TensorProto.INT64)[seed % 2]
    shape = (items,) if seed % 5 == 0 else (samples, items)
    x = net.input("x", shape, dtype)
    words = rng.integers(0, 4, shape).astype((np.int32, np.int64)[seed % 2])
    _check(net, net.node("TfIdfVectorizer", x, **attrs), {"x": words})


def test_ngrams_of_texts_are_refused() -> None:
    net = Net()
    attrs: dict[str, Any] = {
        "mode": "TF",
        "min_gram_length": 1,
        "max_gram_length": 1,
        "max_skip_count": 0,
        "ngram_counts": [0],
        "ngram_indexes": [0],
        "pool_strings": ["a"],
    }
    x = net.input("x", (3,), TensorProto.INT32)
    with pytest.raises(UnsupportedError, match="n-grams of texts"):
        imported(net.model(net.node("TfIdfVectorizer", x, **attrs)))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"ngram_indexes": [0, 1, 1 << 40]}, "a result of .* bytes"),
        ({"ngram_indexes": [0, 1, -1]}, "3 columns of 3 n-grams"),
        ({"ngram_indexes": [0, 1]}, "2 columns of 3 n-grams"),
        ({"ngram_indexes": [0, 1, 1]}, "several n-grams of one result"),
        ({"min_gram_length": 3}, "n-grams of 3 to 2 items"),
        ({"min_gram_length": 0}, "n-grams of 0 to 2 items"),
        ({"max_skip_count": -3}, "-3 items skipped"),
        ({"ngram_counts": [0, 6]}, "start at .0, 6. of 4"),
        ({"mode": "IDFTF"}, "IDFTF of"),
        ({"pool_int64s": [1, (1 << 32) + 2, 1, 2]}, "items that int32 does not have"),
    ],
)
def test_undefined_ngrams_are_refused(changed: dict[str, Any], reason: str) -> None:
    net = Net()
    attrs: dict[str, Any] = {
        "mode": "TF",
        "min_gram_length": 1,
        "max_gram_length": 2,
        "max_skip_count": 0,
        "ngram_counts": [0, 2],
        "ngram_indexes": [0, 1, 2],
        "pool_int64s": [1, 2, 1, 2],
    }
    x = net.input("x", (6,), TensorProto.INT32)
    y = net.node("TfIdfVectorizer", x, **(attrs | changed))
    with pytest.raises(UnsupportedError, match=reason):
        imported(net.model(y))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_determinants_equal_onnx_runtime(size: int) -> None:
    net = Net(size)
    x = net.input("x", (4, size, size))
    matrices = net.rng.normal(size=(4, size, size)).astype(np.float32)
    matrices[1, :, 0] = 0
    matrices[2] = np.round(matrices[2])
    _check(net, net.node("Det", x), {"x": matrices})


def test_a_large_determinant_is_refused() -> None:
    net = Net()
    with pytest.raises(UnsupportedError, match="33 rows and 33 columns"):
        imported(net.model(net.node("Det", net.input("x", (33, 33)))))


def test_a_constant_mel_matrix_equals_onnx_runtime() -> None:
    net = Net()
    numbers = [net.weight(np.array(n, np.int64)) for n in (8, 32, 8000)]
    edges = [net.scalar(0.0), net.scalar(4000.0)]
    weights = net.node("MelWeightMatrix", *numbers, *edges)
    x = net.input("x", (2, 17))
    spectrum = net.rng.normal(size=(2, 17)).astype(np.float32)
    _check(net, net.node("MatMul", x, weights), {"x": spectrum})


def test_a_mel_matrix_of_computed_edges_is_refused() -> None:
    net = Net()
    numbers = [net.weight(np.array(n, np.int64)) for n in (8, 32, 8000)]
    edge = net.input("edge", ())
    y = net.node("MelWeightMatrix", *numbers, edge, net.scalar(4000.0))
    with pytest.raises(UnsupportedError, match="that are not constant"):
        imported(net.model(y))
