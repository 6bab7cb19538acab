"""Random .tflite graphs, compiled for the host, equal LiteRT."""

from __future__ import annotations

import pytest

from firmwright.flows.verify.verification import verify
from firmwright.pipeline import Options, compile_model, load_module_bytes
from tests.fuzz.random_tflite import random_graph

GRAPHS, DEEP_GRAPHS, BLOCK = 2, 1200, 20
OPTIMIZE = ("balanced", "ram", "speed")


def check(seed: int) -> None:
    data = random_graph(seed)
    options = Options(optimize=OPTIMIZE[seed % 3])
    done = compile_model(
        load_module_bytes(data, f"graph{seed}.tflite"), options, source=data
    )
    found = verify(done, samples=3)
    assert found.mismatches == 0, f"seed {seed}: {found}"


@pytest.mark.host_c
@pytest.mark.parametrize("seed", range(GRAPHS))
def test_a_random_graph_equals_litert(seed: int) -> None:
    check(seed)


@pytest.mark.deep
@pytest.mark.host_c
@pytest.mark.parametrize("first", range(GRAPHS, DEEP_GRAPHS, BLOCK))
def test_random_graphs_equal_litert(first: int) -> None:
    for seed in range(first, first + BLOCK):
        check(seed)
