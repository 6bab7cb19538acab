from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.errors import (
    ReferenceRefusalError,
    ToolFailedError,
    ToolMissingError,
    UsageError,
)
from firmwright.conformance.case_tables import CaseTensor, ConformanceCase
from firmwright.oracle import reference_runner
from firmwright.oracle.compare import compare_outputs
from firmwright.oracle.random_samples import SampleInput, make_samples
from firmwright.oracle.reference_runner import Numerics, run_reference
from tests.ops.tflite_writer import write_cases
from tests.ops.unsigned_layers import int_vector

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "01_digits"
DIGIT = SampleInput("image", (1, 8, 8, 1), np.dtype(np.int8), zero_point=-128)
PROFILES: tuple[Numerics, ...] = ("litert", "tflm")

# Name of the file, of its input, and the input's shape and zero point.
MODELS = {
    "kws_ref_model.tflite": ("input_1", (1, 49, 10, 1), 83),
    "vww_96_int8.tflite": ("input_1_int8", (1, 96, 96, 3), -128),
    "pretrainedResnet_quant.tflite": ("input_1_int8", (1, 32, 32, 3), -128),
    "str_ww_ref_model.tflite": ("serving_default_input_1:0", (1, 30, 1, 40), -128),
    "ad01_int8.tflite": ("input_1", (1, 640), 89),
}


@pytest.mark.parametrize("numerics", PROFILES)
def test_the_example_reaches_its_recorded_accuracy(
    numerics: Numerics, digits_path: Path
) -> None:
    with np.load(EXAMPLE / "digits_test.npz") as archive:
        images = archive["input_1"]
    labels = np.load(EXAMPLE / "digits_labels.npy")
    reference = run_reference(
        digits_path.read_bytes(), [{"image": image} for image in images], numerics
    )
    right = sum(
        int(np.argmax(outputs["digit"]) == label)
        for outputs, label in zip(reference.outputs, labels, strict=True)
    )
    recorded = json.loads((EXAMPLE / "accuracy.json").read_text(encoding="utf-8"))
    assert right / len(labels) == recorded["accuracy_int8"]
    assert len(labels) == recorded["held_out_images"]


@pytest.mark.parametrize("numerics", PROFILES)
def test_the_last_layer_is_the_output(numerics: Numerics, digits_path: Path) -> None:
    inputs = list(make_samples([DIGIT], 4))
    plain = run_reference(digits_path.read_bytes(), inputs, numerics)
    reference = run_reference(digits_path.read_bytes(), inputs, numerics, layers=True)
    assert plain.layers == ()
    assert list(reference.layer_names.values())[:2] == [
        "conv_2d_1",
        "depthwise_conv_2d_1",
    ]
    last = max(reference.layer_names)
    assert reference.layer_names[last] == "digit"
    for k, outputs in enumerate(reference.outputs):
        assert reference.layers[k][14].shape == (1, 8, 8, 16)
        np.testing.assert_array_equal(reference.layers[k][last], outputs["digit"])
        np.testing.assert_array_equal(plain.outputs[k]["digit"], outputs["digit"])


@pytest.mark.sampled(2)
@pytest.mark.models
@pytest.mark.parametrize("name", MODELS)
def test_the_profiles_differ_on_the_anomaly_model_only(
    name: str, model_path: Callable[[str], Path]
) -> None:
    model = model_path(name).read_bytes()
    tensor, shape, zero_point = MODELS[name]
    spec = SampleInput(tensor, shape, np.dtype(np.int8), zero_point)
    inputs = list(make_samples([spec], 6))
    once, twice = (run_reference(model, inputs, numerics) for numerics in PROFILES)
    differs = compare_outputs(once.outputs, twice.outputs).mismatches > 0
    assert differs == (name == "ad01_int8.tflite")


@pytest.mark.parametrize("numerics", PROFILES)
def test_an_invalid_model_gives_a_clear_error(numerics: Numerics) -> None:
    with pytest.raises(
        ToolFailedError, match=r"refuses this model|crashed on this model"
    ):
        run_reference(b"TFL3 but no more" * 8, list(make_samples([DIGIT], 1)), numerics)


@pytest.mark.parametrize("numerics", PROFILES)
def test_a_truncated_model_gives_a_clear_error(
    numerics: Numerics, digits_path: Path
) -> None:
    whole = digits_path.read_bytes()
    with pytest.raises(
        ToolFailedError, match=r"refuses this model|crashed on this model"
    ):
        run_reference(
            whole[: len(whole) // 3], list(make_samples([DIGIT], 1)), numerics
        )


@pytest.mark.parametrize("kind", ["int8", "int16"])
def test_sums_that_litert_does_not_compute_have_tflm_as_reference_alone(
    kind: str,
) -> None:
    case = ConformanceCase(
        "sum",
        "SUM",
        (CaseTensor((2, 3), kind, (0.5,), (0,)), int_vector(1)),
        (CaseTensor((2,), kind, (0.5,), (0,)),),
        {"keep_dims": False},
    )
    model = write_cases([case])
    samples = [{"0.x0": np.array([[1, 2, 3], [-4, 5, 6]], kind)}]
    with pytest.raises(
        ReferenceRefusalError, match="LiteRT BUILTIN_REF refuses"
    ) as raised:
        run_reference(model, samples, "litert")
    assert f"SUM does not compute sums of {kind}" in str(raised.value)
    assert "--numerics tflm" in raised.value.hint
    (outputs,) = run_reference(model, samples, "tflm").outputs
    assert [value.tolist() for value in outputs.values()] == [[6, 7]]


def test_a_worker_that_hangs_is_killed(digits_path: Path) -> None:
    with pytest.raises(ToolFailedError, match=r"did not finish within 0\.001 s"):
        run_reference(
            digits_path.read_bytes(),
            list(make_samples([DIGIT], 1)),
            "litert",
            timeout_s=0.001,
        )


def test_a_missing_package_error_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digits_path: Path
) -> None:
    package = tmp_path / "ai_edge_litert"
    package.mkdir()
    (package / "__init__.py").write_text(
        "raise ModuleNotFoundError('absent')\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)  # which the worker gets
    with pytest.raises(ToolMissingError) as caught:
        run_reference(
            digits_path.read_bytes(), list(make_samples([DIGIT], 1)), "litert"
        )
    assert str(caught.value) == (
        "LiteRT BUILTIN_REF needs the Python package ai-edge-litert, which is not installed. "
        "Try: pip install 'firmwright[verify]'."
    )


def test_wrong_input_names_are_listed_with_the_expected_ones(digits_path: Path) -> None:
    other = SampleInput("picture", (1, 8, 8, 1), np.dtype(np.int8))
    with pytest.raises(
        UsageError, match=r"inputs \['picture'\], the model has \['image'\]"
    ):
        run_reference(
            digits_path.read_bytes(), list(make_samples([other], 1)), "litert"
        )


@pytest.mark.parametrize("numerics", PROFILES)
def test_an_input_of_the_wrong_shape_is_refused(
    numerics: Numerics, digits_path: Path
) -> None:
    other = SampleInput("image", (1, 7, 8, 1), np.dtype(np.int8))
    with pytest.raises(ToolFailedError, match="refuses this model or its inputs"):
        run_reference(
            digits_path.read_bytes(), list(make_samples([other], 1)), numerics
        )


def test_samples_are_required_and_must_have_equal_names(digits_path: Path) -> None:
    model = digits_path.read_bytes()
    with pytest.raises(UsageError, match="at least one sample"):
        run_reference(model, [], "litert")
    with pytest.raises(UsageError, match="do not all name the same inputs"):
        run_reference(model, [{"image": np.zeros(1)}, {"other": np.zeros(1)}], "litert")


def test_no_runtime_is_loaded_into_this_process() -> None:
    source = Path(reference_runner.__file__).read_text(encoding="utf-8")
    assert "ai_edge_litert" not in source
    assert "tflite_micro" not in source
