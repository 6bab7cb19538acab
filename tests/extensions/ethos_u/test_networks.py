"""Networks compiled by Vela equal TFLM or LiteRT on the model of the Ethos-U."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

from firmwright.base.errors import ToolFailedError
from firmwright.oracle.random_samples import SampleInput, make_sample
from firmwright.oracle.reference_runner import RuntimeName, run_reference
from tests.extensions.ethos_u.command_streams import (
    CODES,
    PAYLOAD_BIT,
    Job,
    NpuNetwork,
    compile_with_vela,
    find_commands,
    run,
)
from tests.extensions.ethos_u.npu_networks import random_npu_network

pytestmark = pytest.mark.host_c

ACCELERATORS = (
    "ethos-u55-128",
    "ethos-u65-512",
    "ethos-u55-32",
    "ethos-u55-256",
    "ethos-u65-256",
    "ethos-u55-64",
)
NETWORKS, DEEP_NETWORKS = 3, 300
ORACLES: tuple[RuntimeName, ...] = ("tflm", "litert")
SAMPLES = (1, 3)  # the largest values, random values
Array = NDArray[np.generic]


def reference(
    model: bytes, seed: int, oracle: RuntimeName
) -> list[tuple[list[Array], list[Array]]]:
    """Return inputs and outputs of some samples."""
    details = Interpreter(model_content=model).get_input_details()
    specs = [
        SampleInput(d["name"], tuple(d["shape"]), np.dtype(d["dtype"])) for d in details
    ]
    samples = [make_sample(specs, number, seed) for number in SAMPLES]
    outputs = run_reference(model, samples, oracle).outputs
    return [
        (list(sample.values()), list(output.values()))
        for sample, output in zip(samples, outputs, strict=True)
    ]


def differences(program: Path, network: NpuNetwork, model: bytes, seed: int) -> int:
    """Count the elements that differ from TFLM's, or from LiteRT's if those are fewer.

    Vela's fully connected layers equal TFLM's, its logistic functions and int16 RELU6
    LiteRT's.
    """
    counts = []
    for oracle in ORACLES:
        try:
            pairs = reference(model, seed, oracle)
        except ToolFailedError:
            continue
        results = run(program, [network.job(values) for values, _ in pairs])
        assert {(result.status, result.error) for result in results} == {(0, "")}
        counts.append(
            sum(
                int((a != b).sum())
                for result, (_, expected) in zip(results, pairs, strict=True)
                for a, b in zip(
                    network.results(result, expected), expected, strict=True
                )
            )
        )
        if counts[-1] == 0:
            break
    return min(counts)


@pytest.mark.models
@pytest.mark.parametrize(
    ("name", "accelerator"),
    [("kws_ref_model", "ethos-u55-128"), ("ad01_int8", "ethos-u65-512")],
)
def test_an_mlperf_model_equals_a_reference(
    program: Path, model_path: Callable[[str], Path], name: str, accelerator: str
) -> None:
    model = model_path(f"{name}.tflite").read_bytes()
    assert differences(program, compile_with_vela(model, accelerator), model, 1) == 0


def check(program: Path, seed: int) -> None:
    model = random_npu_network(seed)
    network = compile_with_vela(model, ACCELERATORS[seed % len(ACCELERATORS)])
    assert differences(program, network, model, seed) == 0, f"seed {seed}"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(NETWORKS))
def test_a_random_network_equals_a_reference(program: Path, seed: int) -> None:
    check(program, seed)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(NETWORKS, DEEP_NETWORKS))
def test_random_networks_equal_a_reference(program: Path, seed: int) -> None:
    check(program, seed)


# ---- Defects -------------------------------------------------------------------------

DEFECTS = {
    "NPU_SET_IFM_STRIDE_Y": 16,
    "NPU_SET_OFM_STRIDE_Y": 16,
    "NPU_SET_IFM_ZERO_POINT": 1,
    "NPU_SET_OFM_ZERO_POINT": 1,
    "NPU_SET_IFM2_ZERO_POINT": 1,
    "NPU_SET_OFM_SCALE": 1 << 27,
    "NPU_SET_IFM_REGION": 1,
    "NPU_SET_OFM_REGION": 1,
    "NPU_SET_WEIGHT_REGION": 1,
    "NPU_SET_SCALE_REGION": 1,
    "NPU_SET_WEIGHT_BASE": 16,
    "NPU_SET_WEIGHT_LENGTH": -32,
    "NPU_SET_SCALE_BASE": 16,
    "NPU_SET_IFM_PAD_TOP": 1,
    "NPU_SET_KERNEL_STRIDE": 1,
    "NPU_SET_OFM_DEPTH_M1": 1,
}
"""Commands and the changes of their values."""
DEFECTS_SEED = 25


def changed(payload: bytes, at: int, value: int, has_payload: bool) -> bytes:
    data = (
        struct.pack("<I", value & 0xFFFFFFFF)
        if has_payload
        else struct.pack("<H", value)
    )
    start = at if has_payload else at + 2
    return payload[:start] + data + payload[start + len(data) :]


def test_every_defect_of_a_command_is_refused_or_changes_the_result(
    program: Path,
) -> None:
    model = random_npu_network(DEFECTS_SEED, ("conv", "depthwise", "binary"), "int8")
    network = compile_with_vela(model, "ethos-u55-128")
    values, expected = reference(model, 0, "litert")[1]
    job = network.job(values)
    planted = {
        f"{name} at byte {at}": changed(
            network.payload, at, value + DEFECTS[name], is_long
        )
        for name, at, value in find_commands(network.payload)
        if name in DEFECTS
        for is_long in [bool(CODES[name] & PAYLOAD_BIT)]
    }
    results = run(program, [Job(payload, job.regions) for payload in planted.values()])
    unnoticed = [
        name
        for name, result in zip(planted, results, strict=True)
        if result.status == 0
        and all(map(np.array_equal, network.results(result, expected), expected))
    ]
    assert len(planted) > 20
    assert unnoticed == []


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_payload_never_accesses_memory_outside_of_its_regions(
    program: Path, seed: int
) -> None:
    model = random_npu_network(seed)
    network = compile_with_vela(model, ACCELERATORS[seed % len(ACCELERATORS)])
    job, rng = network.job(reference(model, 0, "litert")[1][0]), random.Random(seed)
    jobs = []
    for _ in range(100):
        payload, weights = bytearray(job.payload), bytearray(job.regions[0])
        for target in (payload, payload, weights):
            if target:
                target[rng.randrange(len(target))] ^= 1 << rng.randrange(8)
        jobs.append(Job(bytes(payload), (bytes(weights), *job.regions[1:])))
    run(program, jobs)
