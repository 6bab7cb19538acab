"""Normalizations of all opsets, axes and shapes equal ONNX Runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from firmwright.oracle.reference_worker import OnnxRuntimeSession
from tests.onnx.onnx_models import Net
from tests.onnx.test_nets import imported, results

SHAPES = ((2, 4, 3, 5), (2, 4, 3), (2, 4))
CASES_SHARE = 0.9
AXES = (None, [0, 2, 3], [2, 3], [1], [-1], [-1, -2], [0, 1, 2, 3], [3], [1, -1])


def _model(
    op: str, opset: int, shape: tuple[int, ...], sizes: list[Any], **attrs: Any
) -> bytes:
    net = Net(opset, opset)
    x = net.input("x", shape)
    return net.model(net.node(op, x, *[net.random(*size) for size in sizes], **attrs))


def variants() -> Iterator[tuple[str, bytes, tuple[int, ...]]]:
    shape = SHAPES[0]
    for opset in (9, 11, 13, 18):
        for axes in AXES:
            given = {} if axes is None else {"axes": axes}
            name = f"MeanVarianceNormalization {opset} {axes}"
            yield (
                name,
                _model("MeanVarianceNormalization", opset, shape, [], **given),
                shape,
            )
    for axis in (-1, 1, 2, 0, -2, -4):
        for count in (1, 2):
            sizes = [shape[axis % 4 :]] * count
            attrs = {"axis": axis, "epsilon": 1e-2} if count == 2 else {"axis": axis}
            name = f"LayerNormalization {axis} {count}"
            yield name, _model("LayerNormalization", 17, shape, sizes, **attrs), shape
    for x in SHAPES:
        for groups in (1, 2, 4):
            name = f"GroupNormalization {x} {groups}"
            data = _model("GroupNormalization", 21, x, [(4,)] * 2, num_groups=groups)
            yield name, data, x
    for opset in (9, 13, 17):
        for x in SHAPES[:2]:
            name = f"InstanceNormalization {opset} {x}"
            yield (
                name,
                _model("InstanceNormalization", opset, x, [(4,)] * 2, epsilon=0.1),
                x,
            )


def test_normalizations_equal_onnx_runtime() -> None:
    counts: Counter[str] = Counter()
    rng = np.random.default_rng(2)
    different = []
    for name, data, shape in variants():
        x = (rng.normal(size=shape) * 3 + 1).astype(np.float32)
        counts["tried"] += 1
        try:
            (expected,) = OnnxRuntimeSession(data, layers=False).run([x])
        except RuntimeError:
            counts["no reference"] += 1
            continue
        counts["compared"] += 1
        (own,) = results(imported(data), {"x": x}).values()
        if not np.allclose(own, expected, rtol=1e-4, atol=1e-5):
            different.append(name)
    print(dict(counts), "differing", len(different))
    assert different == []
    assert counts["compared"] >= CASES_SHARE * counts["tried"]


def test_the_variance_of_a_constant_is_zero_as_in_onnx_runtime() -> None:
    x = np.ones((1, 3, 4, 4), np.float32)
    data = _model("MeanVarianceNormalization", 13, x.shape, [])
    (expected,) = OnnxRuntimeSession(data, layers=False).run([x])
    (own,) = results(imported(data), {"x": x}).values()
    np.testing.assert_array_equal(own, expected)
