"""Features beside PyTorch's spectra, and the examples of training of docs/audio.md."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from firmwright.audio import Features
from firmwright.audio.batches import frames_of
from firmwright.base.dtypes import Array
from tests.unit.audio.test_error_bounds import vowels

PAGE = Path(__file__).resolve().parents[3] / "docs" / "audio.md"


def test_torch_in_double_is_within_the_limits() -> None:
    torch = pytest.importorskip("torch", reason="needs the Python package torch")
    features = Features(noise=None, gain=None)
    tables = features._definition
    sound = vowels()
    frames = frames_of(sound[None], features.frame, features.hop)[0]
    weighted = torch.from_numpy(frames.astype(np.float64))
    spectra = torch.fft.rfft(weighted * torch.from_numpy(tables.window), 512)
    mel = spectra.abs().pow(2) @ torch.from_numpy(tables.bank)
    assert_between_limits(features, sound, mel.sqrt().clamp(min=1).log().numpy())


def assert_between_limits(features: Features, sound: Array, values: Array) -> None:
    """Check that the limits contain the values, and that rows are as near to them."""
    lower, upper = features.limits(sound)
    own = features.to_float(features.compute(sound))
    fits = values < features.to_float(np.array(127, np.int8))
    assert np.all((lower <= values)[fits])
    assert np.all((values <= upper)[fits])
    assert np.all(np.abs(own - values)[fits] <= (upper - lower)[fits])


def _spectrum_model(features: Features) -> bytes:
    """Return the definition in doubles as an ONNX model of frames [n, frame]."""
    from onnx import TensorProto, helper, numpy_helper

    tables = features._definition
    constants = {
        "window": tables.window,
        "bank": tables.bank,
        "one": np.array(1.0),
        "length": np.array(features.length, np.int64),
        "last": np.array([-1], np.int64),
    }
    nodes = [
        helper.make_node("Mul", ["frames", "window"], ["weighted"]),
        helper.make_node("Unsqueeze", ["weighted", "last"], ["signal"]),
        helper.make_node("DFT", ["signal", "length"], ["spectrum"], axis=1, onesided=1),
        helper.make_node(
            "ReduceSumSquare", ["spectrum"], ["energy"], axes=[2], keepdims=0
        ),
        helper.make_node("MatMul", ["energy", "bank"], ["mel"]),
        helper.make_node("Sqrt", ["mel"], ["amplitude"]),
        helper.make_node("Max", ["amplitude", "one"], ["limited"]),
        helper.make_node("Log", ["limited"], ["values"]),
    ]
    kind = TensorProto.DOUBLE
    frames = helper.make_tensor_value_info("frames", kind, ["n", features.frame])
    values = helper.make_tensor_value_info("values", kind, ["n", features.channels])
    tensors = [
        numpy_helper.from_array(array, name) for name, array in constants.items()
    ]
    graph = helper.make_graph(nodes, "spectrum", [frames], [values], tensors)
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(model.SerializeToString())


def test_onnx_runtime_in_double_is_within_the_limits() -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs ONNX Runtime")
    pytest.importorskip("onnx", reason="needs the Python package onnx")
    features = Features(noise=None, gain=None)
    session = onnxruntime.InferenceSession(_spectrum_model(features))
    sound = vowels()
    frames = frames_of(sound[None], features.frame, features.hop)[0]
    (values,) = session.run(None, {"frames": frames.astype(np.float64)})
    assert_between_limits(features, sound, values)


@pytest.mark.parametrize("package", ["torch", "tensorflow"])
def test_examples_of_training_run(package: str) -> None:
    pytest.importorskip(package, reason=f"needs the Python package {package}")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (code,) = [block for block in blocks if f"import {package}" in block]
    exec(compile(code, str(PAGE), "exec"), {})
