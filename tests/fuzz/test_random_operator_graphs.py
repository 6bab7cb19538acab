"""Random graphs of many operators, compiled for the host, equal their runtimes."""

from __future__ import annotations

import pytest

from tests.fuzz.operator_sweeps import sweep_of

GRAPHS, BLOCK = 8, 100
FIRST_QUANTIZED = 3000
"""Seeds of quantized networks that other tests do not use."""
COMPARED_SHARE = 0.99
"""The least share of graphs that the runtime computes."""


def blocks(name: str, count: int, *, first: int = 0, in_gate: bool) -> list[object]:
    """Return the blocks of a generator's graphs, deep except maybe the first."""
    return [
        pytest.param(
            name, start, marks=[] if in_gate and start == first else [pytest.mark.deep]
        )
        for start in range(first, first + count, BLOCK)
    ]


@pytest.mark.host_c
@pytest.mark.parametrize(
    ("name", "first"),
    [
        *blocks("tflite-layers", 1000, in_gate=True),
        *blocks("tflite-rare", 300, in_gate=False),
        *blocks("tflite-state", 1000, in_gate=True),
        *blocks("onnx-layers", 600, in_gate=True),
        *blocks("onnx-rare", 300, in_gate=False),
        *blocks("onnx-further", 1000, in_gate=False),
        *blocks("onnx-bodies", 1000, in_gate=True),
        *blocks("onnx-qdq", 100, first=FIRST_QUANTIZED, in_gate=False),
        *blocks("onnx-qoperator", 100, first=FIRST_QUANTIZED, in_gate=False),
        *blocks("onnx-classical", 200, in_gate=True),
    ],
)
def test_random_graphs_equal_their_runtime(name: str, first: int, deep: bool) -> None:
    if name == "onnx-classical":
        reason = "scikit-learn and skl2onnx are not installed"
        pytest.importorskip("skl2onnx", reason=reason)
    count = BLOCK if deep else GRAPHS
    sweep = sweep_of(name).run(range(first, first + count))
    assert sweep.differing == []
    assert sweep.refused == {}
    assert sweep.compared >= COMPARED_SHARE * count
