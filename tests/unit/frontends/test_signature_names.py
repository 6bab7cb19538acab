"""Inputs and outputs have the names of the signature if the file's are generated."""

from pathlib import Path

import numpy as np
import pytest

from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.samples.reference_outputs import compute_reference
from firmwright.frontends.tflite import names_in_file, read_tflite


def add_model(tensor_in: str, tensor_out: str, other: str = "one") -> dict:
    """Return y = x + 1 in floats, with a signature that says `image` and `scores`."""

    def tensor(name: str, buffer: int) -> dict:
        shape = np.array([1, 4], np.int32)
        return {"_": "Tensor", "Name": name, "Shape": shape, "Buffer": buffer}

    def named(name: str, index: int) -> dict:
        return {"_": "TensorMap", "Name": name, "TensorIndex": index}

    operator = {
        "_": "Operator",
        "Inputs": np.array([0, 1], np.int32),
        "Outputs": np.array([2], np.int32),
    }
    graph = {
        "_": "SubGraph",
        "Tensors": [tensor(tensor_in, 0), tensor(other, 1), tensor(tensor_out, 0)],
        "Inputs": np.array([0], np.int32),
        "Outputs": np.array([2], np.int32),
        "Operators": [operator],
    }
    ones = np.frombuffer(np.ones((1, 4), np.float32).tobytes(), np.uint8)
    return {
        "_": "Model",
        "Version": 3,
        "OperatorCodes": [{"_": "OperatorCode", "BuiltinCode": 0, "Version": 1}],
        "Subgraphs": [graph],
        "Buffers": [{"_": "Buffer"}, {"_": "Buffer", "Data": ones}],
        "SignatureDefs": [
            {
                "_": "SignatureDef",
                "SignatureKey": "serving_default",
                "SubgraphIndex": 0,
                "Inputs": [named("image", 0)],
                "Outputs": [named("scores", 2)],
            }
        ],
    }


GENERATED = "serving_default_image:0", "StatefulPartitionedCall_1:0"


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        (GENERATED, ("image", "scores")),
        (("pixels", "Identity"), ("pixels", "Identity")),
        ((*GENERATED, "scores"), ("image", GENERATED[1])),
    ],
)
def test_generated_names_are_replaced(tensors, expected, write_model, tmp_path: Path):
    file = tmp_path / "net.tflite"
    file.write_bytes(write_model(add_model(*tensors)))
    graph = load_model(file).module.entry_graph
    assert (graph.params[0].name, graph.results[0].name) == expected
    names = names_in_file(read_tflite(file.read_bytes(), ""), 0)
    changed = dict(zip(expected, tensors, strict=False))
    assert names == {ours: name for ours, name in changed.items() if ours != name}


def test_the_reference_gets_the_names_of_the_file(write_model, tmp_path: Path):
    file = tmp_path / "net.tflite"
    file.write_bytes(write_model(add_model(*GENERATED)))
    compiled = compile_for(load_model(file), board="mps2-an386")
    assert [tensor.buffer for tensor in compiled.module.io.outputs] == ["scores"]
    image = np.arange(4, dtype=np.float32).reshape(1, 4)
    reference = compute_reference(compiled, [{"image": image}], layers=True)
    assert (reference.outputs[0]["scores"] == image + 1).all()
    assert set(reference.layers[0]) <= {"scores"}
