"""uint8 operators: import as int8, numpy reference and generated C against LiteRT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.conformance.case_tables import ConformanceCase
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.verify.verification import verify
from firmwright.frontends.tflite.importer import import_model
from firmwright.frontends.tflite.reader import read_tflite
from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ir.graph.nodes import Function
from firmwright.ops.registry import op_table
from tests.ops.generated_c import run_in_c
from tests.ops.reference_answers import ask_together
from tests.ops.tflite_writer import write_cases
from tests.ops.unsigned_cases import unsigned_cases
from tests.ops.unsigned_layers import random_layers
from tests.ops.unsigned_mobilenet import ALL_BLOCKS, unsigned_mobilenet

Array = NDArray[np.generic]
Draw = Callable[[ConformanceCase], list[list[Array]]]


def _evaluated(
    cases: Sequence[ConformanceCase], samples: list[list[list[Array]]]
) -> list[Array]:
    """Return the first sample's outputs by numpy references of the imported model."""
    data = write_cases(cases)
    module = import_model(read_tflite(data, "cases"), "cases", data, op_table())
    main = module.entry
    assert isinstance(main, Function)
    flat = [array for row in samples for array in row[0]]
    inputs = {param.name: array for param, array in zip(main.params, flat, strict=True)}
    values = evaluate_graph(module, inputs, op_table(), {})
    return [values[result.name] for result in main.results]


def _compare(got: Array, expected: Array, case: ConformanceCase, by: str) -> None:
    assert got.dtype == expected.dtype
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
        return
    different = int((got != expected).sum())
    assert not different, (
        f"{case.builtin} {case.name}: {different} of {got.size} differ in {by}"
    )


def _check_references(cases: Sequence[ConformanceCase], draw: Draw) -> None:
    drawn = [draw(case) for case in cases]
    evaluated = iter(_evaluated(cases, drawn))
    for case, answer in zip(cases, ask_together(cases, "litert", draw), strict=True):
        for expected in answer.outputs[0]:
            _compare(next(evaluated), expected, case, "the reference")


def _check_generated_c(
    cases: Sequence[ConformanceCase], draw: Draw, folder: Path
) -> None:
    drawn = [draw(case) for case in cases]
    flat = [[array for row in drawn for array in row[k]] for k in range(len(drawn[0]))]
    compiled = [iter(row) for row in run_in_c(cases, flat, "litert", folder)]
    for case, answer in zip(cases, ask_together(cases, "litert", draw), strict=True):
        for number, outputs in enumerate(answer.outputs):
            for expected in outputs:
                _compare(next(compiled[number]), expected, case, "C")


def test_every_operator_of_uint8_equals_litert(draw: Draw) -> None:
    _check_references([case for _, case in unsigned_cases()], draw)


def test_random_uint8_layers_equal_litert(draw: Draw, deep: bool) -> None:
    for seed in range(18, 48 if deep else 19):
        _check_references(list(random_layers(seed, 84)), draw)


@pytest.mark.host_c
def test_c_of_random_uint8_layers_equals_litert(
    draw: Draw, tmp_path: Path, deep: bool
) -> None:
    for seed in range(100, 115 if deep else 101):
        _check_generated_c(list(random_layers(seed, 14)), draw, tmp_path)


@pytest.mark.deep
@pytest.mark.host_c
def test_c_of_every_operator_of_uint8_equals_litert(draw: Draw, tmp_path: Path) -> None:
    _check_generated_c([case for _, case in unsigned_cases()], draw, tmp_path)


@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=[pytest.mark.host_c, pytest.mark.deep]),
        pytest.param("mps2-an386", marks=pytest.mark.qemu),
        pytest.param("mps3-an547", marks=[pytest.mark.qemu, pytest.mark.deep]),
        pytest.param("mps2-an385", marks=[pytest.mark.qemu, pytest.mark.deep]),
        pytest.param("microbit", marks=[pytest.mark.qemu, pytest.mark.deep]),
        pytest.param(
            "qemu-riscv32-virt", marks=[pytest.mark.qemu("riscv32"), pytest.mark.deep]
        ),
    ],
)
def test_a_mobilenet_of_uint8_is_bit_exact(board: str, tmp_path: Path) -> None:
    path = tmp_path / "mobilenet.tflite"
    path.write_bytes(unsigned_mobilenet())
    _check_network(path, board)


@pytest.mark.deep
@pytest.mark.qemu
@pytest.mark.parametrize("board", ["host", "mps2-an386", "mps3-an547"])
def test_a_mobilenet_of_full_depth_is_bit_exact(board: str, tmp_path: Path) -> None:
    path = tmp_path / "mobilenet.tflite"
    path.write_bytes(unsigned_mobilenet(128, blocks=ALL_BLOCKS))
    _check_network(path, board)


def _check_network(path: Path, board: str) -> None:
    compiled = compile_for(load_model(path), board)
    found = verify(compiled, samples=3, find_first_divergence=board == "host")
    assert found.layer is None
    assert (found.samples, found.mismatches, found.is_float) == (3, 0, False)
    defaults = {
        item.kind for item in compiled.summary.operators if item.schedule == "default"
    }
    assert not defaults & {"conv2d", "depthwise_conv2d"}
