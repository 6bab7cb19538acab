"""Nodes that violate the schema of their operator are refused, as by ONNX Runtime."""

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firmwright.base.errors import FirmwrightError, ModelError
from firmwright.flows.model.model import load_model
from firmwright.frontends.onnx.operators.registry import onnx_importers
from firmwright.frontends.onnx.reader import parse_model

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

OPSET = 21
ML_OPSET = 3
_TYPES = onnx.AttributeProto.AttributeType
_VALUES: dict[int, Any] = {
    _TYPES.INT: 1,
    _TYPES.FLOAT: 1.0,
    _TYPES.STRING: "x",
    _TYPES.INTS: [1],
    _TYPES.FLOATS: [1.0],
    _TYPES.STRINGS: ["x"],
}


def schemas() -> Iterator[Any]:
    """Yield the schemas of the operators that have an importer."""
    for key in sorted(onnx_importers()):
        domain, _, name = key.rpartition(":")
        version = ML_OPSET if domain else OPSET
        if onnx.defs.has(name, version, domain):
            schema = onnx.defs.get_schema(name, version, domain)
            if not schema.deprecated:
                yield schema


def model_of(schema: Any, inputs: int, attributes: dict[str, Any]) -> bytes:
    names = [f"x{place}" for place in range(inputs)]
    outputs = [f"y{place}" for place in range(max(1, schema.min_output))]
    node = onnx.helper.make_node(
        schema.name, names, outputs, domain=schema.domain, **attributes
    )
    make_info = onnx.helper.make_tensor_value_info
    float32 = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [make_info(name, float32, [2, 3]) for name in names],
        [make_info(outputs[0], float32, None)],
    )
    opsets = [
        onnx.helper.make_opsetid("", OPSET),
        onnx.helper.make_opsetid("ai.onnx.ml", ML_OPSET),
    ]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return bytes(model.SerializeToString())


ELEMENT_TYPES = ("FLOAT", "FLOAT", "FLOAT", "INT64", "INT32", "INT8", "UINT8", "BOOL")


def random_model(schema: Any, attributes: dict[str, Any], draw: random.Random) -> bytes:
    """Return a model of one node with inputs and attributes drawn without a rule."""
    helper = onnx.helper
    most = min(schema.max_input, schema.min_input + 3)
    names = [f"x{place}" for place in range(draw.randint(schema.min_input, most))]
    inputs, constants = [], []
    for name in names:
        shape = [draw.randint(1, 3) for _ in range(draw.choice((0, 1, 2, 3, 4, 4, 5)))]
        kind = onnx.TensorProto.DataType.Value(draw.choice(ELEMENT_TYPES))
        if name != "x0" and draw.random() < 0.5:
            dtype = helper.tensor_dtype_to_np_dtype(kind)
            values = np.full(shape, draw.randint(0, 3)).astype(dtype)
            constants.append(onnx.numpy_helper.from_array(values, name))
        else:
            inputs.append(helper.make_tensor_value_info(name, kind, shape))
    drawn = {
        _TYPES.INT: draw.randint(-1, 5),
        _TYPES.FLOAT: draw.choice((-1.0, 0.0, 1.5)),
        _TYPES.STRING: "x",
        _TYPES.INTS: [draw.randint(-1, 3) for _ in range(draw.randint(1, 4))],
        _TYPES.FLOATS: [1.0],
    }
    for name, item in schema.attributes.items():
        if item.type.value in drawn and draw.random() < 0.25:
            attributes = {name: drawn[item.type.value], **attributes}
    node = helper.make_node(
        schema.name, names, ["y"], domain=schema.domain, **attributes
    )
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", inputs, [y], constants)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return bytes(model.SerializeToString())


def required_attributes(schema: Any) -> dict[str, Any] | None:
    """Return values of the attributes that ONNX requires, None if one is a graph."""
    needed = [item for item in schema.attributes.values() if item.required]
    if any(item.type.value not in _VALUES for item in needed):
        return None
    return {item.name: _VALUES[item.type.value] for item in needed}


def refuse(data: bytes, where: str, why: str) -> None:
    """Check that both readers refuse a model."""
    with pytest.raises(ModelError, match="the model is broken") as caught:
        parse_model(data, "net.onnx")
    assert where in str(caught.value)
    assert why in str(caught.value)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    with pytest.raises(Exception, match=r".") as theirs:
        ort.InferenceSession(data, options)
    assert type(theirs.value).__module__.startswith("onnxruntime")


def test_counts_of_inputs_are_those_of_the_schema() -> None:
    tried = 0
    for schema in schemas():
        attributes = required_attributes(schema)
        if attributes is None:
            continue
        place = f"node 0 ({schema.name})"
        if schema.min_input:
            few = model_of(schema, schema.min_input - 1, attributes)
            refuse(few, place, "the node lacks its input")
            tried += 1
        if schema.max_input < 100:
            many = model_of(schema, schema.max_input + 1, attributes)
            refuse(many, place, f"ONNX defines {schema.max_input}.")
            tried += 1
    assert tried > 250


def test_required_attributes_are_present() -> None:
    tried = 0
    for schema in schemas():
        attributes = required_attributes(schema) or {}
        for name in attributes:
            given = {key: value for key, value in attributes.items() if key != name}
            data = model_of(schema, schema.min_input, given)
            refuse(data, f"node 0 ({schema.name})", f"lacks its attribute {name}.")
            tried += 1
    assert tried > 10


def test_attributes_have_the_types_of_the_schema() -> None:
    tried = 0
    for schema in schemas():
        attributes = required_attributes(schema)
        # A Constant has one of several attributes, and ONNX Runtime reads the first.
        if attributes is None or schema.name == "Constant":
            continue
        for name, item in schema.attributes.items():
            is_text = item.type.value == _TYPES.STRING
            wrong = attributes | {name: 3 if is_text else "text"}
            data = model_of(schema, schema.min_input, wrong)
            refuse(data, f"node 0 ({schema.name})", f"its attribute {name} is of type")
            tried += 1
    assert tried > 250


def test_nodes_in_branches_and_functions_are_checked() -> None:
    relu = onnx.helper.make_node("Relu", [], ["z"])
    make_info = onnx.helper.make_tensor_value_info
    y = make_info("y", onnx.TensorProto.FLOAT, [1])
    branch = onnx.helper.make_graph([relu], "b", [], [make_info("z", 1, [1])])
    choice = onnx.helper.make_node(
        "If", ["c"], ["y"], then_branch=branch, else_branch=branch
    )
    flag = make_info("c", onnx.TensorProto.BOOL, [])
    graph = onnx.helper.make_graph([choice], "g", [flag], [y])
    data = onnx.helper.make_model(graph).SerializeToString()
    refuse(data, "node 0 (If): node 0 (Relu)", "lacks its input X.")

    opset = onnx.helper.make_opsetid("", OPSET)
    own = onnx.helper.make_opsetid("own", 1)
    function = onnx.helper.make_function("own", "F", [], ["z"], [relu], [opset])
    call = onnx.helper.make_node("F", [], ["y"], domain="own")
    graph = onnx.helper.make_graph([call], "g", [], [y])
    model = onnx.helper.make_model(
        graph, functions=[function], opset_imports=[opset, own]
    )
    refuse(model.SerializeToString(), "function F: node 0 (Relu)", "its input X.")


def test_an_absent_input_between_others_is_refused() -> None:
    schema = onnx.defs.get_schema("Add", OPSET)
    model = onnx.load_from_string(model_of(schema, 2, {}))
    model.graph.node[0].input[0] = ""
    with pytest.raises(ModelError, match=r"lacks its input A\."):
        parse_model(model.SerializeToString(), "net.onnx")


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(k, marks=pytest.mark.deep) for k in range(1, 20))]
)
def test_no_node_ends_in_another_error(seed: int, tmp_path: Path) -> None:
    """Nodes of any shapes and attributes are imported or refused with a reason."""
    draw, accepted = random.Random(seed), 0
    file = tmp_path / "net.onnx"
    for schema in schemas():
        attributes = required_attributes(schema)
        for _ in range(0 if attributes is None else 6):
            file.write_bytes(random_model(schema, dict(attributes or {}), draw))
            with contextlib.suppress(FirmwrightError):
                load_model(file)
                accepted += 1
    assert accepted > 100
