"""Keras models: conversion in a child process, with and without TensorFlow."""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from pathlib import Path

import pytest

from firmwright.base.errors import ModelError, ToolFailedError, ToolMissingError
from firmwright.flows.compilation import compile_for
from firmwright.flows.model import load_model
from firmwright.flows.verification import verify
from firmwright.frontends.keras import is_keras

DIGITS = Path(__file__).parents[3] / "examples" / "01_digits" / "digits.tflite"
KERAS_FILE = b"PK\x03\x04 config.json model.weights.h5"
KERAS_MODULE = """
class models:
    def load_model(source, compile):
        assert source.endswith(".keras") and not compile
        return Model()
class Input:
    shape = (None, 8)
    __repr__ = lambda self: "x"
class Model:
    inputs = [Input()]
    def export(self, folder, format, input_signature, verbose):
        open(folder + "/saved", "w").write(repr(input_signature))
"""
TENSORFLOW_MODULE = """
from types import SimpleNamespace
nest = SimpleNamespace(map_structure=lambda function, value: value)
class TFLiteConverter:
    def from_saved_model(folder):
        assert open(folder + "/saved").read() == "[x]"
        return TFLiteConverter
    def convert():
        return open({file!r}, "rb").read()
lite = SimpleNamespace(TFLiteConverter=TFLiteConverter)
"""


def keras_file(folder: Path) -> Path:
    path = folder / "net.keras"
    path.write_bytes(KERAS_FILE)
    return path


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, keras: str) -> None:
    """Put substitutes of both packages on the path of child processes."""
    (folder / "keras.py").write_text(keras)
    (folder / "tensorflow.py").write_text(TENSORFLOW_MODULE.format(file=str(DIGITS)))
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_files_are_detected_by_content() -> None:
    assert is_keras(KERAS_FILE)
    assert is_keras(b"\x89HDF\r\n\x1a\n...")
    assert not is_keras(DIGITS.read_bytes())


def test_a_model_is_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install(tmp_path, monkeypatch, KERAS_MODULE)
    model = load_model(keras_file(tmp_path))
    assert caplog.messages == [
        "net.keras: converted to floats, with batch size 1 for None; see docs/keras.md."
    ]
    assert model.name == "net"
    assert model.source == DIGITS.read_bytes()


def test_a_failure_of_tensorflow_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "raise RuntimeError('an unknown layer')")
    with pytest.raises(ToolFailedError, match=r"cannot convert net\.keras"):
        load_model(keras_file(tmp_path))


def test_without_tensorflow_the_conversion_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "raise ImportError")
    with pytest.raises(ToolMissingError, match="TensorFlow is not installed") as caught:
        load_model(keras_file(tmp_path))
    assert "pip install tensorflow" in str(caught.value)


def test_archives_that_unpack_to_much_more_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.weights.h5", bytes(1 << 24))
    with pytest.raises(ModelError, match="its files unpack to 16,777,216 bytes, more than"):
        load_model(path)


@pytest.mark.skipif(sys.platform != "linux", reason="limits addresses")
def test_a_conversion_has_limited_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "values = bytearray(1 << 40)")
    with pytest.raises(ToolFailedError, match="MemoryError"):
        load_model(keras_file(tmp_path))


@pytest.mark.deep
@pytest.mark.host_c
@pytest.mark.skipif(not importlib.util.find_spec("tensorflow"), reason="needs TensorFlow")
@pytest.mark.parametrize("layer", ["LSTM", "GRU"])
def test_recurrent_networks_equal_litert(layer: str, tmp_path: Path) -> None:
    import keras

    layers = [keras.layers.Input((10, 3)), getattr(keras.layers, layer)(6), keras.layers.Dense(4)]
    path = tmp_path / "net.keras"
    keras.Sequential(layers).save(path)
    assert verify(compile_for(load_model(path), board="host")).exact
