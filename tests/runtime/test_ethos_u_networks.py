"""Networks compiled by Vela and executed by the model of the Ethos-U equal TFLM bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from ethos_u import NpuNetwork, build, compile_with_vela, run
from npu_networks import random_npu_network
from numpy.typing import NDArray

from firmwright.base.errors import ToolFailedError
from firmwright.oracle.random_samples import SampleInput, make_sample
from firmwright.oracle.reference_runner import run_reference

pytestmark = pytest.mark.host_c

ACCELERATORS = (
    "ethos-u55-128", "ethos-u65-512", "ethos-u55-32", "ethos-u55-256", "ethos-u65-256",
    "ethos-u55-64",
)  # fmt: skip
NETWORKS, DEEP_NETWORKS = 3, 300
SAMPLES = 3
Array = NDArray[np.generic]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("ethos_u"))


def reference(model: bytes, seed: int) -> list[tuple[list[Array], list[Array]]]:
    """Return inputs and outputs of some samples, by LiteRT for operators that TFLM lacks."""
    details = Interpreter(model_content=model).get_input_details()
    specs = [SampleInput(d["name"], tuple(d["shape"]), np.dtype(d["dtype"])) for d in details]
    samples = [make_sample(specs, number, seed) for number in range(SAMPLES)]
    try:
        outputs = run_reference(model, samples, "tflm").outputs
    except ToolFailedError:
        outputs = run_reference(model, samples, "litert").outputs
    return [
        (list(sample.values()), list(output.values()))
        for sample, output in zip(samples, outputs, strict=True)
    ]


def differences(program: Path, network: NpuNetwork, model: bytes, seed: int) -> int:
    """Return the number of elements that differ from TFLM's."""
    pairs = reference(model, seed)
    count = 0
    for result, (_, expected) in zip(
        run(program, [network.job(values) for values, _ in pairs]), pairs, strict=True
    ):
        assert (result.status, result.error) == (0, "")
        made = network.results(result, expected)
        count += sum(int((a != b).sum()) for a, b in zip(made, expected, strict=True))
    return count


@pytest.mark.models
@pytest.mark.parametrize(
    ("name", "accelerator"), [("kws_ref_model", "ethos-u55-128"), ("ad01_int8", "ethos-u65-512")]
)
def test_an_mlperf_model_equals_tflm(
    program: Path, model_path: Callable[[str], Path], name: str, accelerator: str
) -> None:
    model = model_path(f"{name}.tflite").read_bytes()
    assert differences(program, compile_with_vela(model, accelerator), model, 1) == 0


def check(program: Path, seed: int) -> None:
    model = random_npu_network(seed)
    network = compile_with_vela(model, ACCELERATORS[seed % len(ACCELERATORS)])
    assert differences(program, network, model, seed) == 0, f"seed {seed}"


@pytest.mark.parametrize("seed", range(NETWORKS))
def test_a_random_network_equals_tflm(program: Path, seed: int) -> None:
    check(program, seed)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(NETWORKS, DEEP_NETWORKS))
def test_random_networks_equal_tflm(program: Path, seed: int) -> None:
    check(program, seed)
