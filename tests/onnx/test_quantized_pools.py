"""Average pools in QDQ form equal QLinearAveragePool."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from firmwright.ir.graph.nodes import Function
from tests.onnx.backend import run_merged
from tests.onnx.onnx_models import Net
from tests.onnx.test_nets import imported, results
from tests.onnx.test_onnx_runtime_integers import LayerMaker, inputs_of
from tests.onnx.test_random_qdq_graphs import expected

POOLS, DEEP_POOLS, FIRMWARE_POOLS, SAMPLES = 30, 400, 6, 3


def window(rng: np.random.Generator, sizes: list[int]) -> dict[str, Any]:
    """Return random attributes of AveragePool; some windows are the whole input."""
    kernel = (
        sizes if rng.random() < 0.2 else [int(rng.integers(1, n + 1)) for n in sizes]
    )
    attrs: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": [int(rng.integers(1, min(n, 3) + 1)) for n in kernel],
        "count_include_pad": int(rng.random() < 0.4),
    }
    padding = rng.choice(["none", "pads", "auto"])
    if padding == "pads":
        attrs["pads"] = [
            int(rng.integers(0, min(n, 3))) for _ in range(2) for n in kernel
        ]
    elif padding == "auto":
        attrs["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    if padding != "auto" and rng.random() < 0.3:
        attrs["ceil_mode"] = 1
    return attrs


def pool(seed: int) -> bytes:
    rng = np.random.Generator(np.random.PCG64(seed))
    maker, net = LayerMaker(rng, bool(seed % 2), seed % 3 == 0), Net(seed)
    sizes = [int(rng.integers(3, 10)) for _ in range(int(rng.choice([1, 2, 2, 2, 3])))]
    shape = (1, int(rng.choice([1, 3, 8])), *sizes)
    scale = maker.scale(0.01, 0.06)
    x = maker.tensor(net, net.input("x", shape), scale)
    if seed % 5 == 0:
        y = net.node("GlobalAveragePool", x)
    else:
        y = net.node("AveragePool", x, **window(rng, sizes))
    if rng.random() < 0.15:
        y = net.node("Relu", y)
    return net.model(
        maker.tensor(net, y, scale if seed % 4 == 0 else maker.scale(0.005, 0.05))
    )


def test_pools_equal_onnx_runtime(deep: bool) -> None:
    different = []
    for seed in range(DEEP_POOLS if deep else POOLS):
        model = pool(seed)
        module = imported(model)
        assert isinstance(module.entry, Function)
        samples = [inputs_of(module, number) for number in range(SAMPLES)]
        for sample, (y,) in zip(samples, expected(model, samples), strict=True):
            own = results(module, sample)[module.entry.results[0].name]
            if not np.array_equal(own, y):
                different.append(seed)
    assert different == []


def test_a_window_over_the_whole_input_is_a_mean_of_integers() -> None:
    net = Net(1)
    maker = LayerMaker(np.random.Generator(np.random.PCG64(1)), False, False)
    x = maker.tensor(net, net.input("x", (1, 4, 6, 6)), maker.scale(0.01, 0.06))
    y = net.node("AveragePool", x, kernel_shape=[6, 6])
    module = imported(net.model(maker.tensor(net, y, maker.scale(0.01, 0.06))))
    assert isinstance(module.entry, Function)
    assert "mean" in [call.op for call in module.entry.body]


@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=pytest.mark.host_c),
        pytest.param("mps2-an386", marks=[pytest.mark.qemu, pytest.mark.deep]),
        pytest.param("mps2-an385", marks=[pytest.mark.qemu, pytest.mark.deep]),
    ],
)
def test_firmware_of_pools_equals_onnx_runtime(board: str) -> None:
    models = [pool(seed) for seed in range(1, FIRMWARE_POOLS + 1)]
    modules = list(map(imported, models))
    samples = [inputs_of(module, 7) for module in modules]
    (got,) = run_merged(modules, [samples], board)
    for number, (model, module, sample) in enumerate(
        zip(models, modules, samples, strict=True)
    ):
        assert isinstance(module.entry, Function)
        ((y,),) = expected(model, [sample])
        name = module.entry.results[0].name
        np.testing.assert_array_equal(got[f"{number}.{name}"], y, str(number))
