"""Reading models of Keras, PyTorch and scikit-learn executes nothing in them."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from pathlib import Path

import pytest

from firmwright.base.errors import FirmwrightError, ModelError
from firmwright.flows.model.model import load_model
from firmwright.frontends.keras.config_check import find_foreign_classes
from firmwright.frontends.pytorch.program import read_program
from firmwright.oracle import reference_runner
from tests.pytorch.archive_writer import pack, small_program, unpacked

LAMBDA = {"class_name": "Lambda", "config": {"function": ["4wEAAAAAAAAA", None, None]}}
WRAPPED = {"class_name": "TimeDistributed", "config": {"layer": LAMBDA}}
PROGRAM = "net/models/model.json"


def test_keras_models_that_name_code_are_refused(tmp_path: Path) -> None:
    model = json.dumps({"class_name": "Sequential", "config": {"layers": [WRAPPED]}})
    assert find_foreign_classes(model) == "Lambda"  # as it is asked of a .h5 file
    path = tmp_path / "net.keras"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", model)
        archive.writestr("model.weights.h5", b"")
    with pytest.raises(
        ModelError, match="whose code firmwright does not execute: Lambda"
    ):
        load_model(path)


@pytest.mark.parametrize(
    "name",
    [
        "net/data/weights/model.pt",
        "net/data/constants/model.pt",
        "net/data/constants/custom_obj_0",
        "net/data/constants/opaque_obj_0",
        "net/data/aotinductor/model/model.so",
        "other/models/model.json",
        "net/Models/Model.json",
    ],
)
def test_pytorch_archives_with_pickles_or_ambiguous_names_are_refused(
    name: str,
) -> None:
    """PyTorch, as the reference, would unpickle or load these members."""
    files = {**unpacked(small_program()), name: b"{}"}
    with pytest.raises(ModelError, match=r"two files|unknown kind|2 programs"):
        read_program(pack(files), "net.pt2")


@pytest.mark.parametrize(
    "target",
    [
        "torch.hub.load",
        "torch.serialization.os.system",
        "torch.ops.load_library",
        "torch.ops.aten.__class__.__base__",
        "_operator.attrgetter",
        "_operator.methodcaller",
        "_operator.call",
        "#anything:x",
    ],
)
def test_pytorch_operators_are_not_other_functions(target: str) -> None:
    """PyTorch resolves the name of an operator by attributes of its modules."""
    files = unpacked(small_program())
    root = json.loads(files[PROGRAM])
    root["graph_module"]["graph"]["nodes"][1]["target"] = target
    with pytest.raises(ModelError, match="not an operator or a size"):
        read_program(pack({**files, PROGRAM: json.dumps(root).encode()}), "net.pt2")


@pytest.mark.parametrize(
    "text", ["__import__('os').system('x')", "open('x')", "s0.__class__"]
)
def test_pytorch_sizes_are_arithmetic(text: str) -> None:
    """PyTorch evaluates them as Python."""
    files = unpacked(small_program())
    root = json.loads(files[PROGRAM])
    sizes = root["graph_module"]["graph"]["tensor_values"]["c"]["sizes"]
    sizes[0] = {"as_expr": {"expr_str": text, "hint": None}}
    with pytest.raises(ModelError, match="not an operator or a size"):
        read_program(pack({**files, PROGRAM: json.dumps(root).encode()}), "net.pt2")


def test_pytorch_unpickles_only_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program's sample inputs are a pickle, which PyTorch loads unchecked."""
    seen = {}

    def run(*_: object, environment: dict[str, str], **__: object) -> tuple[int, str]:
        seen.update(environment)
        return 1, ""

    monkeypatch.setattr(reference_runner, "run_program", run)
    with pytest.raises(FirmwrightError):
        reference_runner.run_worker(Path("none"), "reference_worker", "PyTorch", 1.0)
    assert seen["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] == "1"


class Payload:
    """Executes something when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize(
    "name", ["net.pkl", "net.joblib", "net.pt", "net.pt2", "net.npy"]
)
def test_pickles_are_not_unpickled(name: str, tmp_path: Path) -> None:
    """Models of scikit-learn come as ONNX; a pickle is not a model file."""
    marker = tmp_path / "marker"
    data = io.BytesIO()
    pickle.dump(Payload(marker), data)
    content = data.getvalue()
    if name.endswith(("pt", "pt2")):
        content = pack({"net/data.pkl": content, "net/version": b"3"})
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FirmwrightError):
        load_model(tmp_path / name)
    assert not marker.exists()
