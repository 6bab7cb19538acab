"""Random graphs of many operators, compiled for the host, equal their runtimes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fuzz.merged_graphs import Sweep
from tests.fuzz.random_tflite_layers import random_operator_graph
from tests.fuzz.random_tflite_rare import random_rare_graph
from tests.fuzz.random_tflite_states import random_stateful_graph
from tests.onnx.random_classical_models import random_classical_model
from tests.onnx.random_flow_graphs import random_flow_model
from tests.onnx.random_further_graphs import random_further_model
from tests.onnx.random_layer_graphs import random_float_model
from tests.onnx.random_qdq_graphs import random_qdq_model
from tests.onnx.random_qoperator_graphs import random_qoperator_model
from tests.onnx.random_rare_graphs import random_rare_model

GRAPHS, BLOCK = 8, 100
FIRST_ONNX = 3000
"""Seeds of quantized networks that other tests do not use."""
COMPARED_SHARE = 0.99
"""The least share of graphs that the runtime computes."""


def blocks(count: int) -> pytest.MarkDecorator:
    """Return the first seeds of the blocks of `count` graphs, deep but the first."""
    later = range(BLOCK, count, BLOCK)
    deep = [pytest.param(first, marks=pytest.mark.deep) for first in later]
    return pytest.mark.parametrize("first", [0, *deep])


def check(
    runtime: str, make: Callable[[int], bytes], first: int, *, deep: bool
) -> None:
    count = BLOCK if deep else GRAPHS
    sweep = Sweep(runtime, make).run(range(first, first + count))
    assert sweep.differing == []
    assert sweep.refused == {}
    assert sweep.compared >= COMPARED_SHARE * count


@pytest.mark.host_c
@blocks(1000)
def test_random_tflite_graphs_equal_litert(first: int, deep: bool) -> None:
    check("litert", random_operator_graph, first, deep=deep)


@pytest.mark.deep
@pytest.mark.host_c
@pytest.mark.parametrize("first", range(0, 300, BLOCK))
def test_random_tflite_graphs_of_rare_operators_equal_litert(
    first: int, deep: bool
) -> None:
    check("litert", random_rare_graph, first, deep=deep)


@pytest.mark.host_c
@blocks(1000)
def test_random_tflite_graphs_with_state_equal_litert(first: int, deep: bool) -> None:
    check("litert", random_stateful_graph, first, deep=deep)


@pytest.mark.host_c
@blocks(1000)
def test_random_onnx_graphs_with_bodies_equal_onnx_runtime(
    first: int, deep: bool
) -> None:
    check("onnxruntime", random_flow_model, first, deep=deep)


@pytest.mark.deep
@pytest.mark.host_c
@pytest.mark.parametrize("first", range(0, 1000, BLOCK))
def test_random_onnx_graphs_of_further_operators_equal_onnx_runtime(
    first: int, deep: bool
) -> None:
    check("onnxruntime", random_further_model, first, deep=deep)


@pytest.mark.host_c
@blocks(600)
def test_random_onnx_graphs_equal_onnx_runtime(first: int, deep: bool) -> None:
    check("onnxruntime", random_float_model, first, deep=deep)


@pytest.mark.deep
@pytest.mark.host_c
@pytest.mark.parametrize("first", range(0, 300, BLOCK))
def test_random_onnx_graphs_of_rare_operators_equal_onnx_runtime(
    first: int, deep: bool
) -> None:
    check("onnxruntime", random_rare_model, first, deep=deep)


@pytest.mark.deep
@pytest.mark.host_c
@pytest.mark.parametrize("make", [random_qdq_model, random_qoperator_model])
def test_random_quantized_graphs_equal_onnx_runtime(
    make: Callable[[int], bytes], deep: bool
) -> None:
    check("onnxruntime", make, FIRST_ONNX, deep=deep)


@pytest.mark.host_c
@blocks(200)
def test_random_classical_models_equal_onnx_runtime(first: int, deep: bool) -> None:
    pytest.importorskip(
        "skl2onnx", reason="scikit-learn and skl2onnx are not installed"
    )
    check("onnxruntime", random_classical_model, first, deep=deep)
