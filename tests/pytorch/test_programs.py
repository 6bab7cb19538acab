"""PyTorch programs of make_archives.py give PyTorch's recorded outputs."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model, load_model
from firmwright.flows.samples.reference_outputs import (
    quantized_values,
    run_numpy_reference,
)
from firmwright.flows.verify.verification import verify
from firmwright.ir.graph.nodes import Function
from firmwright.oracle.compare import compare_outputs
from firmwright.oracle.reference_runner import run_reference

Tensors = dict[str, NDArray[np.generic]]
ARCHIVES = Path(__file__).parent / "archives"
NAMES = sorted(path.stem for path in ARCHIVES.glob("*.pt2"))
SAMPLES = 3
VALUES_RECORDED = 32
RANDOM_PROGRAMS, LAYERS_OF_A_PROGRAM = 25, 40
has_torch = importlib.util.find_spec("torch") is not None


@cache
def recorded() -> dict[str, NDArray[np.generic]]:
    with np.load(ARCHIVES / "recorded.npz") as archive:
        return dict(archive)


def loaded(name: str) -> Model:
    return load_model(ARCHIVES / f"{name}.pt2")


def entry_of(model: Model) -> Function:
    assert isinstance(model.module.entry, Function)
    return model.module.entry


def samples(model: Model, name: str, count: int = SAMPLES) -> list[Tensors]:
    """Return the inputs that make_archives.py used."""
    rng = np.random.Generator(np.random.PCG64(len(name)))
    return [
        {
            value.name: rng.standard_normal(value.type.shape).astype(np.float32)
            if value.type.dtype.is_float
            else np.full(value.type.shape, index, value.type.dtype.np)
            for value in entry_of(model).params
        }
        for index in range(1 if name.startswith("operators") else count)
    ]


def assert_recorded(name: str, outputs: list[Tensors]) -> None:
    for index, values in enumerate(outputs):
        for position, (tensor, actual) in enumerate(values.items()):
            expected = recorded()[f"{name}/{index}/{position}"]
            some = np.ravel(actual)[:: max(1, actual.size // VALUES_RECORDED)]
            assert some.dtype == expected.dtype, tensor
            if expected.dtype.kind == "f":
                bound = 1e-4 * np.abs(expected).max() + 1e-5
                np.testing.assert_allclose(
                    some, expected, 0, bound, err_msg=f"{name} {tensor}"
                )
            else:
                np.testing.assert_array_equal(
                    some, expected, err_msg=f"{name} {tensor}"
                )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NAMES)
def test_results_equal_those_of_pytorch(name: str) -> None:
    model = loaded(name)
    inputs = samples(model, name)
    assert_recorded(
        name, [dict(v) for v in run_numpy_reference(model.module, inputs).outputs]
    )


def run_on(name: str, board: str) -> None:
    model = loaded(name)
    with open_session(compile_for(model, board=board)) as session:
        outputs = session.run_all(samples(model, name))
    assert_recorded(name, [dict(values) for values in outputs])


@pytest.mark.host_c
def test_generated_c_equals_pytorch() -> None:
    """Floats, with state between samples."""
    run_on("cached_decoder", "host")


def test_quantized_programs_compute_with_integers() -> None:
    for name in (
        "mobilenet_v2_int8",
        "resnet8_int8",
        "resnet8_cortexm",
        "mobilenet_v1_qat",
    ):
        calls = entry_of(loaded(name)).body
        floats = [call.op for call in calls if call.outputs[0].type.dtype.is_float]
        assert floats == ["dequantize"]


@pytest.mark.qemu
def test_firmware_equals_pytorch() -> None:
    """Integer convolutions of several kinds, and a softmax of floats."""
    run_on("ds_cnn_int8", "mps2-an386")


@pytest.mark.deep
@pytest.mark.qemu
@pytest.mark.parametrize("name", [name for name in NAMES if name != "operators"])
@pytest.mark.parametrize("board", ["host", "mps2-an386", "mps3-an547"])
def test_every_network_equals_pytorch(name: str, board: str) -> None:
    run_on(name, board)


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not has_torch, reason="needs the Python package torch")
@pytest.mark.host_c
@pytest.mark.parametrize("seed", range(1, RANDOM_PROGRAMS + 1))
def test_random_quantized_layers_equal_pytorch(seed: int, tmp_path: Path) -> None:
    """Layers with random scales, weights and zero points, also in generated C."""
    import torch

    from tests.pytorch.make_archives import saved
    from tests.pytorch.quantized_cases import QuantizedLayers

    layers = QuantizedLayers(seed, LAYERS_OF_A_PROGRAM).eval()
    path = tmp_path / f"layers{seed}.pt2"
    path.write_bytes(saved(torch.export.export(layers, layers.inputs())))
    model = load_model(path)
    batch = samples(model, path.stem, 8)
    integers = quantized_values(model.module, batch)
    expected = run_reference(path.read_bytes(), batch, "pytorch", integers=integers)
    named = [
        {key.partition(":")[2]: y for key, y in run.items()} for run in expected.outputs
    ]
    result = compare_outputs(named, run_numpy_reference(model.module, batch).outputs)
    assert not result.mismatches, f"{seed} {result}"
    changed, values = expected.rounding
    assert 0 < changed < values / 1000
    with open_session(compile_for(model, board="host")) as session:
        generated = session.run_all(batch)
    result = compare_outputs(named, generated)
    assert not result.mismatches, f"{seed} {result}"


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not has_torch, reason="needs the Python package torch")
@pytest.mark.parametrize("form", ["", "_int8"])
@pytest.mark.parametrize(
    "name", ["full_mobilenet_v2", "full_mobilenet_v3", "transformer"]
)
@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=pytest.mark.host_c),
        pytest.param("mps2-an386", marks=pytest.mark.qemu),
        pytest.param("mps3-an547", marks=pytest.mark.qemu),
    ],
)
def test_verify_on_a_board_against_pytorch(
    board: str, name: str, form: str, tmp_path: Path
) -> None:
    from tests.pytorch.make_archives import exported, saved

    path = tmp_path / f"{name}.pt2"
    path.write_bytes(saved(exported(name + form)))
    result = verify(compile_for(load_model(path), board=board), samples=2)
    assert result.exact, result
    assert "PyTorch" in result.reference + result.explanation


@pytest.mark.deep
@pytest.mark.host_c
@pytest.mark.filterwarnings("ignore")  # torch warns of its own plans
@pytest.mark.skipif(not has_torch, reason="needs the Python package torch")
@pytest.mark.parametrize("is_core", [False, True])
@pytest.mark.parametrize("name", [name for name in NAMES if "_core" not in name])
def test_verify_against_pytorch(name: str, is_core: bool, tmp_path: Path) -> None:
    from tests.pytorch.make_archives import exported, saved

    if "cortexm" in name:
        pytest.importorskip("executorch.backends.cortex_m", reason="needs executorch")
    path = tmp_path / f"{name}.pt2"
    path.write_bytes(saved(exported(f"{name}_core" if is_core else name)))
    model = load_model(path)
    result = verify(compile_for(model, board="host"), samples=5)
    assert result.exact, result
    assert "PyTorch" in result.reference + result.explanation
