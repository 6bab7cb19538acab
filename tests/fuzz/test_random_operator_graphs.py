"""Random graphs of many operators, compiled for the host, equal their runtimes."""

from __future__ import annotations

import pytest

from tests.fuzz.merged_graphs import Sweep
from tests.fuzz.random_tflite_layers import random_operator_graph

GRAPHS, DEEP_GRAPHS, BLOCK = 30, 1000, 100


@pytest.mark.host_c
@pytest.mark.parametrize(
    "first",
    [
        0,
        *(
            pytest.param(k, marks=pytest.mark.deep)
            for k in range(BLOCK, DEEP_GRAPHS, BLOCK)
        ),
    ],
)
def test_random_tflite_graphs_equal_litert(first: int, deep: bool) -> None:
    count = BLOCK if deep else GRAPHS
    sweep = Sweep("litert", random_operator_graph)
    sweep.run(range(first, first + count))
    assert sweep.differing == []
    assert sweep.refused == {}
    assert sweep.compared >= 0.99 * count
