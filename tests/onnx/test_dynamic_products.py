"""Matrix products with dynamic quantization equal ONNX Runtime bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.oracle.reference_runner import run_reference
from onnx import TensorProto
from tests.onnx.onnx_models import Net
from tests.onnx.test_nets import entry_of, imported

Array = NDArray[Any]
M4 = "cortex-m -mcpu=cortex-m4"
SHAPES = ((1, 64, 40), (3, 32, 9), (1, 10, 8), (2, 24, 5), (3, 9, 4), (1, 172, 64))
"""Rows, inputs and outputs of the products."""


def products(rng: np.random.Generator, order: int = 1) -> bytes:
    """Return a model of one product per shape, every second with one weight scale."""
    net, results = Net(opset=17), []
    for k, (rows, inputs, outputs) in enumerate(SHAPES):
        x = net.input(f"x{k}", (rows, inputs))
        parts = net.node("DynamicQuantizeLinear", x, outputs=3)
        w = net.weight(rng.integers(-128, 128, (inputs, outputs)).astype(np.int8))
        scales = rng.uniform(0.001, 0.02, outputs if k % 2 == 0 else 1).astype(
            np.float32
        )
        total = net.node("MatMulInteger", parts[0], w, parts[2])
        total = net.node("Cast", total, to=TensorProto.FLOAT)
        scale = net.node("Mul", *(parts[1], net.weight(scales))[::order])
        results.append(net.node("Mul", *(total, scale)[::order]))
    return net.model(*results)


def samples(rng: np.random.Generator, count: int) -> list[dict[str, Array]]:
    def values(rows: int, inputs: int) -> Array:
        scale, shift = 10 ** rng.uniform(-3, 3), rng.uniform(-3, 3)
        return ((rng.normal(size=(rows, inputs)) + shift) * scale).astype(np.float32)

    found = [
        {f"x{k}": values(rows, inputs) for k, (rows, inputs, _) in enumerate(SHAPES)}
        for _ in range(count)
    ]
    return [{name: np.zeros_like(x) for name, x in found[0].items()}, *found]


@pytest.mark.sampled(2)
@pytest.mark.host_c
@pytest.mark.parametrize(("target", "order"), [(None, 1), (M4, -1)])
def test_dynamic_products_equal_onnx_runtime(target: str | None, order: int) -> None:
    rng = np.random.Generator(np.random.PCG64(order + 7))
    data, feeds = products(rng, order), samples(rng, 60)
    module = imported(data)
    assert [call.op for call in entry_of(module).body].count(
        "hybrid_fully_connected"
    ) == len(SHAPES)
    options = {"board": "host"} | ({"target": target} if target else {})
    compiled = compile_for(module, **options)
    expected = run_reference(data, feeds, "onnxruntime").outputs
    with open_session(compiled, in_process=True) as session:
        got = session.run_all(feeds)
    for own, theirs in zip(got, expected, strict=True):
        for name, values in theirs.items():
            np.testing.assert_array_equal(own[name], values)
