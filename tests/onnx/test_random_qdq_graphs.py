"""Random quantized graphs have the integers of ONNX Runtime: importer, host, boards."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.ir.graph.nodes import Function
from firmwright.oracle.reference_worker import OnnxRuntimeSession
from tests.onnx.backend import run_merged
from tests.onnx.random_qdq_graphs import Array, random_qdq_model, random_samples
from tests.onnx.test_nets import imported, results

GRAPHS, DEEP_GRAPHS, PER_IMAGE, SAMPLES = 16, 300, 10, 3


def expected(model: bytes, samples: list[dict[str, Array]]) -> list[list[Array]]:
    """Return ONNX Runtime's outputs of each sample, in the order of the model."""
    session = OnnxRuntimeSession(model, layers=False)
    return [
        [
            np.asarray(y)
            for y in session.run([sample[name] for name in session.input_names])
        ]
        for sample in samples
    ]


def test_random_graphs_equal_onnx_runtime(deep: bool) -> None:
    different = []
    for seed in range(DEEP_GRAPHS if deep else GRAPHS):
        model, samples = random_qdq_model(seed), random_samples(seed + 1, SAMPLES)
        module = imported(model)
        assert isinstance(module.entry, Function)
        for sample, outputs in zip(samples, expected(model, samples), strict=True):
            own = results(module, sample)
            names = [value.name for value in module.entry.results]
            different += [
                (seed, name)
                for name, y in zip(names, outputs, strict=True)
                if not np.array_equal(own[name], y)
            ]
    assert different == []


@pytest.mark.deep
@pytest.mark.parametrize("first", range(0, DEEP_GRAPHS, PER_IMAGE))
@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=pytest.mark.host_c),
        pytest.param("mps2-an386", marks=pytest.mark.qemu),
        pytest.param("mps2-an385", marks=pytest.mark.qemu),
    ],
)
def test_firmware_of_random_graphs_equals_onnx_runtime(board: str, first: int) -> None:
    models = [random_qdq_model(seed) for seed in range(first, first + PER_IMAGE)]
    modules = list(map(imported, models))
    samples = [random_samples(first + number, SAMPLES) for number in range(PER_IMAGE)]
    params = [
        [value.name for value in m.entry.params]
        for m in modules
        if isinstance(m.entry, Function)
    ]
    batch = [
        [
            {name: part[k][name] for name in names}
            for part, names in zip(samples, params, strict=True)
        ]
        for k in range(SAMPLES)
    ]
    got = run_merged(modules, batch, board)
    for number, (model, module) in enumerate(zip(models, modules, strict=True)):
        assert isinstance(module.entry, Function)
        for k, outputs in enumerate(expected(model, samples[number])):
            for value, y in zip(module.entry.results, outputs, strict=True):
                own = got[k][f"{number}.{value.name}"]
                np.testing.assert_array_equal(
                    own, y, f"graph {first + number}, {value.name}"
                )
