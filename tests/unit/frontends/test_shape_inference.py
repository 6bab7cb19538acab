"""Nodes that would end the process in shape inference of onnx are left out of it."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx", reason="ONNX needs the package onnx")

from firmwright.base.errors import FirmwrightError
from firmwright.frontends.onnx.shape_inference import infer_shapes
from firmwright.pipeline import load_module_bytes
from onnx import TensorProto, helper

UNSAFE = (
    ("EyeLike", "", 9),
    ("RegexFullMatch", "", 20),
    ("DictVectorizer", "ai.onnx.ml", 1),
    ("LabelEncoder", "ai.onnx.ml", 1),
    ("TreeEnsemble", "ai.onnx.ml", 5),
)


def model_of(op: str, domain: str, version: int, *, in_body: bool) -> bytes:
    """Return a model in which the node reads a value of an unknown type."""
    nodes = [
        helper.make_node("Unknown", ["x"], ["u"], domain="other"),
        helper.make_node(op, ["u"], ["y"], domain=domain, dtype=1),
    ]
    y = helper.make_empty_tensor_value_info("y")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])
    if in_body:
        body = helper.make_graph(nodes, "body", [], [y])
        condition = helper.make_tensor_value_info("go", TensorProto.BOOL, [])
        branches = {"then_branch": body, "else_branch": body}
        node = helper.make_node("If", ["go"], ["z"], **branches)
        y = helper.make_empty_tensor_value_info("z")
        graph = helper.make_graph([node], "g", [x, condition], [y])
    else:
        graph = helper.make_graph(nodes, "g", [x], [y])
    versions = {"": 20 if domain else version, domain: version, "other": 1}
    opsets = [helper.make_opsetid(*item) for item in versions.items()]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(made.SerializeToString())


@pytest.mark.parametrize("in_body", [False, True])
@pytest.mark.parametrize(("op", "domain", "version"), UNSAFE)
def test_a_node_of_an_unknown_type_is_refused(
    op: str, domain: str, version: int, in_body: bool
) -> None:
    data = model_of(op, domain, version, in_body=in_body)
    with pytest.raises(FirmwrightError, match=r"Unknown|tree_roots"):
        load_module_bytes(data, "m.onnx")


def test_types_of_known_inputs_are_inferred() -> None:
    node = helper.make_node("EyeLike", ["x"], ["y"], dtype=TensorProto.INT32)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([node], "g", [x], [y])
    opsets = [helper.make_opsetid("", 13)]
    model = infer_shapes(helper.make_model(graph, opset_imports=opsets))
    assert model.graph.output[0].type.tensor_type.elem_type == TensorProto.INT32
    del model.graph.input[0]
    assert not infer_shapes(model).graph.node
