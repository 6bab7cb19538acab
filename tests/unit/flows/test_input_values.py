"""Real values are quantized as the model's own runtime does; integers are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import firmwright as fw
from firmwright.base.dtypes import BOOL, FLOAT32, INT32, get_dtype
from firmwright.base.errors import UsageError
from firmwright.base.quant import Quantization
from firmwright.cli.main import main
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model, model_inputs
from firmwright.flows.samples.input_values import (
    HalfRounding,
    convert_values,
    describe_float_inputs,
    describe_use,
)
from firmwright.flows.samples.reference_outputs import compute_reference
from firmwright.flows.samples.sample_batches import generate_samples, make_batch
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.module import IoTensor
from onnx import TensorProto, helper, numpy_helper
from tests.state.model_writer import ModelFile

ROOT = Path(__file__).resolve().parents[3]
DIGITS = ROOT / "examples/01_digits/digits.tflite"
AWAY, EVEN = HalfRounding.AWAY_FROM_ZERO, HalfRounding.TO_EVEN


def quantized_input(dtype: str, scale: float, zero_point: int, *shape: int) -> IoTensor:
    scale = float(np.float32(scale))
    kind = TensorType(
        shape or (1, 64), get_dtype(dtype), Quantization((scale,), (zero_point,))
    )
    return IoTensor("x", "x", kind)


def real_values(scale: float, count: int) -> np.ndarray:
    """Return random values, ties, neighbours of ties, and values far out of range."""
    rng = np.random.default_rng(count)
    step = np.float32(scale)
    ties = (np.arange(-300, 300, dtype=np.float32) + np.float32(0.5)) * step
    near = [np.nextafter(ties, np.float32(end)) for end in (-np.inf, np.inf)]
    wild = rng.standard_normal(count).astype(np.float32) * step * np.float32(120)
    far = np.array([-1e6, 1e6, -40000, 40000, 0, -0.0], np.float32) * step
    return np.concatenate([ties, *near, wild, far]).astype(np.float32)


@pytest.mark.parametrize(
    ("dtype", "scale", "zero_point"),
    [
        ("int8", 0.5, -3),
        ("int8", 0.5847029, 83),
        ("uint8", 0.0078125, 128),
        ("int16", 0.1, 0),
    ],
)
def test_floats_are_quantized_as_by_litert(
    dtype: str, scale: float, zero_point: int, tmp_path: Path
) -> None:
    values = real_values(scale, 3000)[None]
    file = ModelFile()
    graph = file.graph("main")
    x = graph.input("x", "float32", values.shape)
    y = graph.tensor("y", dtype, values.shape, scale, zero_point)
    graph.op("QUANTIZE", [x], [y])
    graph.outputs(y)
    path = tmp_path / "quantize.tflite"
    path.write_bytes(file.data())
    model = compile_for(load_model(path))
    reference = compute_reference(model, [{model.module.io.inputs[0].name: values}])
    (expected,) = reference.outputs[0].values()
    assert "LiteRT" in reference.name
    tensor = quantized_input(dtype, scale, zero_point, *values.shape)
    found, use = convert_values(values, tensor, AWAY, "here")
    np.testing.assert_array_equal(found, expected)
    assert use is not None
    assert use.saturated > 0


@pytest.mark.parametrize(
    ("dtype", "scale", "zero_point"), [("int8", 0.5, -3), ("uint8", 0.3, 7)]
)
def test_floats_are_quantized_as_by_onnx_runtime(
    dtype: str, scale: float, zero_point: int
) -> None:
    values = real_values(scale, 3000)
    kind = TensorProto.INT8 if dtype == "int8" else TensorProto.UINT8
    constants = [
        numpy_helper.from_array(np.array(scale, np.float32), "scale"),
        numpy_helper.from_array(np.array(zero_point, dtype), "zero"),
    ]
    node = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, values.shape)
    y = helper.make_tensor_value_info("y", kind, values.shape)
    graph = helper.make_graph([node], "n", [x], [y], constants)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (expected,) = session.run(None, {"x": values})
    tensor = quantized_input(dtype, scale, zero_point, *values.shape)
    np.testing.assert_array_equal(
        convert_values(values, tensor, EVEN, "here")[0], expected
    )
    assert not np.array_equal(convert_values(values, tensor, AWAY, "here")[0], expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_of_any_width_are_quantized(dtype: type) -> None:
    tensor = quantized_input("int8", 0.5, 0, 1, 4)
    found, _ = convert_values(
        np.array([[0.25, -0.25, 1, 99]], dtype), tensor, AWAY, "here"
    )
    assert found.tolist() == [[1, -1, 2, 127]]
    assert found.dtype == np.int8


def test_integers_that_fit_are_taken_as_they_are() -> None:
    tensor = quantized_input("int8", 0.5, 0, 1, 3)
    for dtype in (np.int8, np.int16, np.int64, np.uint8):
        found, _ = convert_values(np.array([[0, 1, 127]], dtype), tensor, AWAY, "here")
        assert (found.tolist(), found.dtype) == ([[0, 1, 127]], np.int8)


PLAIN = {
    kind: IoTensor("x", "x", TensorType((1, 2), kind))
    for kind in (INT32, FLOAT32, BOOL)
}
QUANTIZED = quantized_input("int8", 0.5, 0, 1, 2)


@pytest.mark.parametrize(
    ("tensor", "values", "problem"),
    [
        (
            QUANTIZED,
            np.array([[0, 200]]),
            "x is int64 with values from 0 to 200; .* needs int8",
        ),
        (
            QUANTIZED,
            np.array([[0, 200]], np.uint8),
            "x is uint8 with values from 0 to 200",
        ),
        (
            QUANTIZED,
            np.array([[1j, 2]]),
            "x is complex128; .*int8, or to float32 with its real",
        ),
        (QUANTIZED, np.array([[True, False]]), "x is bool; the model needs int8"),
        (QUANTIZED, np.array([["a", "b"]]), "x is <U1; the model needs int8"),
        (QUANTIZED, np.array([[np.nan, 0]]), "x has values that are not numbers"),
        (
            PLAIN[INT32],
            np.array([[0.5, 1]]),
            "x is float64; .* Try: convert the array to int32.",
        ),
        (
            PLAIN[INT32],
            np.array([[2**40, 1]]),
            "x is int64 with values from 1 to 1099511627776",
        ),
        (PLAIN[FLOAT32], np.array([[2**24 + 1, 1]]), "x is int64 with values"),
        (
            PLAIN[FLOAT32],
            np.array([[1e300, 1]]),
            "x has values that are too large for float32",
        ),
        (
            PLAIN[FLOAT32],
            np.array([[True, False]]),
            "x is bool; the model needs float32",
        ),
        (
            PLAIN[BOOL],
            np.array([[0, 2]]),
            "x is int64 with values from 0 to 2; .* needs bool",
        ),
    ],
)
def test_other_values_are_refused(
    tensor: IoTensor, values: np.ndarray, problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        convert_values(values, tensor, AWAY, "here")


def test_plain_inputs_take_what_they_can_hold() -> None:
    found, use = convert_values(np.array([[1, 2]]), PLAIN[FLOAT32], AWAY, "here")
    assert (found.dtype, use) == (np.float32, None)
    assert (
        convert_values(np.array([[0.1, 2]]), PLAIN[FLOAT32], AWAY, "here")[0].dtype
        == np.float32
    )
    assert convert_values(np.array([[0, 1]]), PLAIN[BOOL], AWAY, "here")[
        0
    ].tolist() == [[False, True]]


def warnings_about(values: np.ndarray, tensor: IoTensor) -> tuple[str, ...]:
    return make_batch({"x": values}, [tensor], "here").warnings


def test_floats_for_an_input_of_integers_are_noted() -> None:
    tensor = quantized_input("int8", 0.5, -3)
    reals = np.linspace(-60, 60, 64, dtype=np.float32).reshape(1, 64)
    (note,) = make_batch({"x": reals}, [tensor], "here").notes
    assert note == "x: floats were quantized by the scale 0.5 and the zero point -3."
    assert make_batch({"x": reals.astype(np.int8)}, [tensor], "here").notes == ()


def test_saturated_values_are_counted() -> None:
    values = np.linspace(-100, 100, 64, dtype=np.float32).reshape(1, 64)
    (warning,) = warnings_about(values, quantized_input("int8", 0.5, 0))
    share = 100 * np.count_nonzero((values < -64.25) | (values >= 63.75)) / 64
    outside = (
        f"x: {share:.1f} % of the values are outside of the input's range, -64 to 63.5"
    )
    assert warning.startswith(f"{outside}, and saturate: calibrate the model with")


def test_real_values_that_were_cast_to_integers_are_noticed() -> None:
    real = np.random.default_rng(1).uniform(-1.9, 1.9, (1, 64))
    (warning,) = warnings_about(
        real.astype(np.int8), quantized_input("int8", 0.5847, 83)
    )
    assert (
        "x: the values, -1 to 1, use at most 3 of the 256 levels, all below the zero point. Int"
        in warning
    )
    assert "scale 0.5847 and the zero point 83" in warning
    (warning,) = warnings_about(real, quantized_input("int8", 0.5847, 83))
    assert (
        "of the input's range, -123.372 to 25.7268: check the preprocessing" in warning
    )


def test_real_values_of_a_wide_range_that_were_cast_lie_on_one_side_of_the_zero() -> (
    None
):
    values = np.random.default_rng(3).integers(-83, 57, (3, 1, 64))
    (warning,) = warnings_about(
        values.astype(np.int8), quantized_input("int8", 0.5847, 83)
    )
    assert (
        "levels, all below the zero point. Integers are taken as quantized" in warning
    )
    assert (
        warnings_about(values.astype(np.int8), quantized_input("int8", 0.5847, 0)) == ()
    )
    at_the_edge = quantized_input("int8", 0.5847, 126)
    assert warnings_about(values.astype(np.int8), at_the_edge) == ()


@pytest.mark.parametrize(
    ("dtype", "zero_point"),
    [("int8", -128), ("int8", 0), ("int8", 83), ("uint8", 128), ("int16", 0)],
)
def test_samples_of_the_generator_cause_no_warning(dtype: str, zero_point: int) -> None:
    tensor = quantized_input(dtype, 0.5, zero_point)
    samples = generate_samples([tensor], 30).samples
    assert all(warnings_about(sample["x"], tensor) == () for sample in samples)
    assert warnings_about(np.stack([sample["x"] for sample in samples]), tensor) == ()


def test_few_or_plain_values_cause_no_warning() -> None:
    assert (
        warnings_about(np.ones((1, 4), np.int8), quantized_input("int8", 0.5, 0, 1, 4))
        == ()
    )
    plain = IoTensor("x", "x", TensorType((1, 64), INT32))
    assert warnings_about(np.ones((1, 64), np.int32), plain) == ()
    assert describe_use(plain, [None]) == ()


def test_real_values_give_the_outputs_of_their_quantized_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled = fw.compile(fw.load(DIGITS))
    (tensor,) = compiled.module.io.inputs
    quantization = tensor.type.quantization
    assert quantization is not None
    whole = generate_samples([tensor], 6).samples
    levels = np.concatenate([sample[tensor.name] for sample in whole])
    real = (levels.astype(np.float64) - quantization.zero_point) * quantization.scale
    np.savez(tmp_path / "real.npz", input_1=real)
    with fw.session(compiled, in_process=True) as session:
        np.testing.assert_array_equal(session.run(real), session.run(levels))
    assert main(["run", str(DIGITS), "--input", str(tmp_path / "real.npz")]) == 0
    assert main(["verify", str(DIGITS), "--input", str(tmp_path / "real.npz")]) == 0
    assert capsys.readouterr().err == ""


def spoken(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the warnings in one line: run has them at its end, evaluate on top."""
    said = capsys.readouterr()
    return " ".join(f"{said.out} {said.err}".split())


def test_wrong_values_are_a_warning_of_run_verify_and_evaluate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    values = np.random.default_rng(2).integers(-1, 2, (2, 1, 8, 8, 1)).astype(np.int8)
    path = tmp_path / "wrong.npz"
    np.savez(path, input_1=values)
    for words in (["run", "--input"], ["verify", "--input"], ["evaluate", "--data"]):
        assert main([words[0], str(DIGITS), words[1], str(path)]) == 0
        assert "image: the values, -1 to 1, use at most 3" in spoken(capsys)
    with fw.session(fw.compile(fw.load(DIGITS)), in_process=True) as session:
        session.run(values)
    assert "use at most 3 of the 256 levels" in caplog.text


@pytest.mark.parametrize(
    "name",
    [
        "ad01_int8.tflite",
        "kws_ref_model.tflite",
        "str_ww_ref_model.tflite",
        "vww_96_int8.tflite",
    ],
)
def test_a_cast_of_reals_is_noticed_for_public_models_and_right_data_are_not(
    name: str, model_path: Callable[[str], Path]
) -> None:
    (tensor,) = model_inputs(load_model(model_path(name)))
    quantization = tensor.type.quantization
    assert quantization is not None
    # Data rarely use the whole range.
    rng, zero = np.random.default_rng(6), quantization.zero_point
    low, high = max(-128, zero - 150), min(127, zero + 150)
    levels = rng.integers(low, high, (5, *tensor.type.shape)).astype(np.int8)
    real = (levels - np.float32(zero)) * np.float32(quantization.scale)
    for right in (levels, real):
        assert make_batch({tensor.name: right}, [tensor], "here").warnings == ()
    for wrong, words in (
        (real.astype(np.int8), "Integers are taken as quantized"),
        (real * np.float32(255), "of the values are outside of the input's range"),
        (real / np.float32(255), "check the preprocessing"),
    ):
        (warning,) = make_batch({tensor.name: wrong}, [tensor], "here").warnings
        assert words in warning


def test_the_data_of_the_example_cause_no_warning() -> None:
    data = np.load(DIGITS.with_name("digits_test.npz"))["input_1"]
    (tensor,) = model_inputs(load_model(DIGITS))
    assert make_batch({tensor.name: data}, [tensor], "here").warnings == ()
    for image in data:
        assert make_batch({tensor.name: image}, [tensor], "here").warnings == ()


def test_float_inputs_that_the_model_quantizes_have_the_same_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A network with float inputs, whose first operator quantizes them."""
    file = ModelFile()
    graph = file.graph("main")
    x = graph.input("x", "float32", (1, 64))
    flat = graph.tensor("flat", "float32", (64,))
    y = graph.tensor("y", "int8", (64,), 0.02, -100)
    graph.op("RESHAPE", [x, graph.constant("shape", np.int32([64]))], [flat])
    graph.op("QUANTIZE", [flat], [y])
    graph.outputs(y)
    path = tmp_path / "float_input.tflite"
    path.write_bytes(file.data())
    values = np.random.default_rng(3).uniform(-0.5, 4.5, (3, 1, 64)).astype(np.float32)
    for name, array, words in (
        ("right", values, ""),
        ("pixels", values * 255, "of the values are outside of the input's range"),
        ("tiny", values / 255, "use at most 2 of the 256 levels"),
    ):
        np.savez(tmp_path / f"{name}.npz", x=array)
        for verb, option in (("run", "--input"), ("evaluate", "--data")):
            assert main([verb, str(path), option, str(tmp_path / f"{name}.npz")]) == 0
            said = spoken(capsys)
            assert words in said
            assert ("warning" in said) == bool(words)
    compiled = compile_for(load_model(path))
    share = 100 * np.mean((values * 255 < -0.57) | (values * 255 >= 4.55))
    (warning,) = describe_float_inputs(compiled.imported, [{"x": values * 255}])
    assert f"x: {share:.1f} % of the values" in warning


def test_float_inputs_of_float_models_have_no_warning() -> None:
    compiled = compile_for(load_model(DIGITS.with_name("digits_float.tflite")))
    (tensor,) = compiled.module.io.inputs
    wild = np.full(tensor.type.shape, 1e9, np.float32)
    assert describe_float_inputs(compiled.imported, [{tensor.name: wild}]) == ()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn"])
def test_floats_are_rounded_for_an_input_that_stores_fewer_bits(
    name: str, tmp_path: Path
) -> None:
    dtype = get_dtype(name)
    tensor = IoTensor("x", "x", TensorType((4,), dtype))
    reals = np.array([0.1, -1.0, np.nan, np.inf], np.float32)
    narrow, use = convert_values(reals, tensor, EVEN, "")
    assert (narrow.dtype, use) == (dtype.np, None)
    assert narrow.tobytes() == reals.astype(dtype.np).tobytes()
    np.savez(tmp_path / "x.npz", x=narrow)
    with np.load(tmp_path / "x.npz") as file:
        again, _ = convert_values(file["x"], tensor, EVEN, "")
    assert again.dtype == dtype.np
    assert again.tobytes() == narrow.tobytes()
    if name != "bfloat16":
        with pytest.raises(UsageError, match="too large"):
            convert_values(np.array([1e30], np.float32), tensor, EVEN, "")
