"""Keras models: conversion in a child process, with and without TensorFlow."""

from __future__ import annotations

import importlib.util
import json
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from firmwright.base.errors import ModelError, ToolFailedError, ToolMissingError
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.verify.verification import verify
from firmwright.frontends.keras import is_keras
from firmwright.frontends.keras.config_check import find_foreign_classes

DIGITS = Path(__file__).parents[3] / "examples" / "01_digits" / "digits.tflite"
DENSE = {"module": "keras.layers", "class_name": "Dense", "config": {"units": 2}}
LAMBDA = {"class_name": "Lambda", "config": {"function": ["4wEAAAAAAAAA", None, None]}}
HDF5_MARK = b"\x89HDF\r\n\x1a\n"
TF_KERAS_MODULE = """
class models:
    def load_model(source, compile, safe_mode):
        assert source.endswith({suffixes!r}) and not compile and safe_mode
        return Model()
class Input:
    shape = (None, 8)
    __repr__ = lambda self: "x"
class Model:
    inputs = [Input()]
"""
"""A substitute of Keras 2 for files of some types; its models have no export."""
KERAS_MODULE = f"""
__version__ = "3.11.3"
{TF_KERAS_MODULE.format(suffixes=(".keras", ".h5")).strip()}
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
H5PY_MODULE = """
import json
class Link: pass
class ExternalLink: pass
class Group: pass
class Dataset: pass
class File(dict):
    def __init__(self, source, mode):
        data = source.read() if hasattr(source, "read") else open(source, "rb").read()
        content = json.loads(data[8:])
        self.attrs = content["attributes"]
        super().__init__({name: ExternalLink() for name in content["external"]})
    def get(self, name, getlink=False):
        return self[name]
    def __enter__(self):
        return self
    def __exit__(self, *error):
        pass
"""
"""A substitute of h5py: JSON after the mark of HDF5."""


def sequential(*layers: object) -> dict[str, object]:
    return {
        "class_name": "Sequential",
        "config": {"name": "net", "layers": list(layers)},
    }


def hdf5(attributes: dict[str, str], external: Sequence[str] = ()) -> bytes:
    content = {"attributes": attributes, "external": external}
    return HDF5_MARK + json.dumps(content).encode()


def keras_file(
    folder: Path, model: object = None, *, external: Sequence[str] = ()
) -> Path:
    path = folder / "net.keras"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", json.dumps(model or sequential(DENSE)))
        archive.writestr("metadata.json", json.dumps({"keras_version": "2.15.0"}))
        archive.writestr("model.weights.h5", hdf5({}, external))
    return path


def hdf5_file(
    folder: Path, model: object = None, *, external: Sequence[str] = ()
) -> Path:
    path = folder / "net.h5"
    path.write_bytes(
        hdf5({"model_config": json.dumps(model or sequential(DENSE))}, external)
    )
    return path


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, keras: str) -> None:
    """Put substitutes of the packages on the import path, which child processes get."""
    packages = folder / "packages"
    packages.mkdir()
    (packages / "keras.py").write_text(keras)
    (packages / "h5py.py").write_text(H5PY_MODULE)
    (packages / "tensorflow.py").write_text(TENSORFLOW_MODULE.format(file=str(DIGITS)))
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setenv("FIRMWRIGHT_CACHE", str(folder / "cache"))


def state_versions(folder: Path, **versions: str) -> None:
    """Make the substitutes known to importlib.metadata."""
    for name, version in versions.items():
        facts = folder / "packages" / f"{name}-0.dist-info"
        facts.mkdir(exist_ok=True)
        (facts / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")


def test_a_model_is_converted_once_by_each_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "conversions"
    install(
        tmp_path,
        monkeypatch,
        f"{KERAS_MODULE}\nwith open({str(log)!r}, 'a') as file: file.write('x')\n",
    )
    state_versions(tmp_path, tensorflow="99.1", keras="99.1")
    path = keras_file(tmp_path)
    for _ in range(2):
        assert load_model(path).source == DIGITS.read_bytes()
    assert log.read_text() == "x"
    (entry,) = (tmp_path / "cache" / "models").iterdir()
    assert entry.read_bytes() == DIGITS.read_bytes()
    state_versions(tmp_path, tensorflow="99.2")
    load_model(path)
    assert log.read_text() == "xx"
    keras_file(tmp_path, sequential(DENSE, DENSE))
    load_model(path)
    assert log.read_text() == "xxx"
    entry.parent.chmod(0o500)
    state_versions(tmp_path, keras="99.2")
    load_model(path)
    entry.parent.chmod(0o700)
    assert log.read_text() == "xxxx"
    keras_file(tmp_path, sequential(DENSE, LAMBDA))
    with pytest.raises(ModelError, match="Lambda"):
        load_model(path)


def test_files_are_detected_by_content() -> None:
    assert is_keras(b"PK\x03\x04 config.json model.weights.h5")
    assert is_keras(b"\x89HDF\r\n\x1a\n...")
    assert not is_keras(DIGITS.read_bytes())


@pytest.mark.parametrize("write", [keras_file, hdf5_file])
def test_a_model_is_converted(
    write: Callable[[Path], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    install(tmp_path, monkeypatch, KERAS_MODULE)
    path = write(tmp_path)
    model = load_model(path)
    assert caplog.messages == [
        f"{path.name}: converted to floats, with batch size 1 for None; see docs/models.md."
    ]
    assert model.name == "net"
    assert model.source == DIGITS.read_bytes()


FOREIGN = {
    "a lambda": (sequential(DENSE, LAMBDA), "Lambda"),
    "a wrapped lambda": (
        sequential({"class_name": "TimeDistributed", "config": {"layer": LAMBDA}}),
        "Lambda",
    ),
    "a lambda in a submodel": (
        sequential(sequential(DENSE, sequential(LAMBDA))),
        "Lambda",
    ),
    "a marshalled function": (
        sequential({**DENSE, "config": {"activation": {"class_name": "__lambda__"}}}),
        "__lambda__",
    ),
    "a function by name": (
        sequential({"module": "builtins", "class_name": "function", "config": "exec"}),
        "builtins.function",
    ),
    "a class of another package": (sequential({**DENSE, "module": "os"}), "os.Dense"),
    "a package that begins alike": (
        sequential({**DENSE, "module": "keras_x"}),
        "keras_x.Dense",
    ),
    "no name of a module": (
        sequential({**DENSE, "module": "keras.a b"}),
        "keras.a b.Dense",
    ),
    "a registered class": (
        sequential({**DENSE, "registered_name": "mine>Dense"}),
        "Dense registered as mine>Dense",
    ),
    "a registration alone": (
        sequential({"registered_name": "mine>F"}),
        "None registered as mine>F",
    ),
    "a helper of Keras": (
        sequential({"module": "keras.src.utils.file_utils", "class_name": "get_file"}),
        "get_file",
    ),
    "a saved model": (
        sequential({"class_name": "TFSMLayer", "config": {"filepath": "x"}}),
        "TFSMLayer",
    ),
    "a list instead of a name": (sequential({"class_name": ["Dense"]}), "['Dense']"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_foreign_classes_are_found_at_any_depth(kind: str) -> None:
    model, named = FOREIGN[kind]
    assert find_foreign_classes(json.dumps(model)).split(", ")[0] == named


@pytest.mark.parametrize("write", [keras_file, hdf5_file])
def test_foreign_classes_are_refused_before_keras_is_imported(
    write: Callable[[Path, object], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, named = FOREIGN["a lambda in a submodel"]
    install(tmp_path, monkeypatch, "raise SystemExit('keras was imported')")
    with pytest.raises(ModelError, match=f"does not execute: {named}"):
        load_model(write(tmp_path, model))


def test_what_training_used_is_not_loaded_and_may_be_the_users() -> None:
    loss = {"class_name": "MyLoss", "module": "train", "registered_name": "mine>MyLoss"}
    assert (
        find_foreign_classes(json.dumps({**sequential(DENSE), "compile_config": loss}))
        == ""
    )


def test_an_older_keras_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keras 3.11.2 executes a Lambda of a .h5 file, even with `safe_mode`."""
    install(tmp_path, monkeypatch, KERAS_MODULE.replace("3.11.3", "3.11.2"))
    with pytest.raises(ToolMissingError, match=r"Keras 3\.11\.2 may execute code"):
        load_model(hdf5_file(tmp_path))


@pytest.mark.parametrize("write", [keras_file, hdf5_file])
def test_weights_are_not_read_from_other_files(
    write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, KERAS_MODULE)
    with pytest.raises(ModelError, match="'kernel' of the model is in another file"):
        load_model(write(tmp_path, external=["kernel"]))


def test_weights_alone_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, KERAS_MODULE)
    (tmp_path / "net.h5").write_bytes(hdf5({}))
    with pytest.raises(ModelError, match="weights without a model"):
        load_model(tmp_path / "net.h5")


def test_a_failure_of_tensorflow_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "raise RuntimeError('an unknown layer')")
    with pytest.raises(
        ToolFailedError, match=r"convert net\.h5\.\nRuntimeError: an unknown"
    ):
        load_model(hdf5_file(tmp_path))


def test_a_file_of_keras_2_that_keras_3_cannot_load_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        tmp_path, monkeypatch, "raise TypeError('at groups\\n\\nUnrecognized argument')"
    )
    with pytest.raises(ModelError) as caught:
        load_model(keras_file(tmp_path))
    assert str(caught.value).startswith(
        "net.keras: the model was saved by Keras 2, and Keras 3 cannot load it: Unrecognized "
        "argument. Try: pip install tf_keras, which loads files of Keras 2"
    )


KERAS_3_REFUSES = """
__version__ = "3.11.3"
class models:
    def load_model(source, compile, safe_mode):
        raise TypeError("Unrecognized argument")
"""
CONCRETE_FUNCTIONS = """
class Concrete:
    def get_concrete_function(self, signature):
        return repr(signature)
def function(model):
    return Concrete()
def from_concrete_functions(functions, model):
    assert functions == ["x"]
    return TFLiteConverter
TFLiteConverter.from_concrete_functions = from_concrete_functions
"""


def test_a_file_of_keras_2_is_loaded_by_tf_keras(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, KERAS_3_REFUSES)
    packages = tmp_path / "packages"
    (packages / "tf_keras.py").write_text(TF_KERAS_MODULE.format(suffixes=(".keras",)))
    with (packages / "tensorflow.py").open("a") as module:
        module.write(CONCRETE_FUNCTIONS)
    assert load_model(keras_file(tmp_path)).module.entry_graph.params


def test_without_tf_keras_the_error_of_keras_3_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, KERAS_3_REFUSES)
    with pytest.raises(ModelError, match="Unrecognized argument") as caught:
        load_model(keras_file(tmp_path))
    assert "pip install tf_keras" in str(caught.value)


def test_without_tensorflow_the_conversion_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "raise ImportError")
    with pytest.raises(ToolMissingError, match="TensorFlow is not installed") as caught:
        load_model(keras_file(tmp_path))
    assert "pip install 'firmwright[keras]'" in str(caught.value)


def test_archives_that_unpack_to_much_more_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.weights.h5", bytes(1 << 24))
    with pytest.raises(
        ModelError, match="its files unpack to 16,777,216 bytes, more than"
    ):
        load_model(path)


@pytest.mark.skipif(sys.platform != "linux", reason="limits addresses")
def test_a_conversion_has_limited_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "values = bytearray(1 << 40)")
    with pytest.raises(ToolFailedError, match="MemoryError"):
        load_model(hdf5_file(tmp_path))


@pytest.mark.deep
@pytest.mark.skipif(
    not importlib.util.find_spec("tensorflow"), reason="needs TensorFlow"
)
@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_a_lambda_saved_by_keras_is_not_executed(suffix: str, tmp_path: Path) -> None:
    import keras

    marker = tmp_path / "marker"
    layer = keras.layers.Lambda(lambda x: marker.write_text("") or x)
    wrapped = keras.layers.TimeDistributed(layer, name="outer")
    path = tmp_path / f"net{suffix}"
    keras.Sequential([keras.layers.Input((3, 4)), wrapped]).save(path)
    marker.unlink()
    with pytest.raises(ModelError, match="Lambda"):
        load_model(path)
    assert not marker.exists()


@pytest.mark.deep
@pytest.mark.host_c
@pytest.mark.skipif(
    not importlib.util.find_spec("tensorflow"), reason="needs TensorFlow"
)
@pytest.mark.parametrize("layer", ["LSTM", "GRU"])
def test_recurrent_networks_equal_litert(layer: str, tmp_path: Path) -> None:
    import keras

    layers = [
        keras.layers.Input((10, 3)),
        getattr(keras.layers, layer)(6),
        keras.layers.Dense(4),
    ]
    path = tmp_path / "net.keras"
    keras.Sequential(layers).save(path)
    assert verify(compile_for(load_model(path), board="host")).exact
