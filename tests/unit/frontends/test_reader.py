"""The TFLite reader: decoding, and one test for each rule of a valid file."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firmwright.base.errors import ModelError
from firmwright.base.quant import Quantization
from firmwright.frontends.tflite import read_tflite
from firmwright.frontends.tflite.decoded_model import RawNode, RawSignature, RawTensor
from firmwright.ir.core import Span
from firmwright.tflite_schema import (
    ELEMENT_BITS,
    ENUMERATIONS,
    OPERATORS,
    OPTION_TABLES,
    OPTIONS_OF_OPERATOR,
    TABLES,
)

TableDict = dict[str, Any]
Writer = Callable[[TableDict], bytes]
Edit = Callable[[TableDict], object]

MODELS = (
    "ad01_fp32.tflite",
    "ad01_int8.tflite",
    "kws_ref_model.tflite",
    "kws_ref_model_float32.tflite",
    "pretrainedResnet.tflite",
    "pretrainedResnet_quant.tflite",
    "str_ww_ref_model.tflite",
    "vww_96_float.tflite",
    "vww_96_int8.tflite",
)


def graph(model: TableDict) -> TableDict:
    return model["Subgraphs"][0]


def tensor(model: TableDict, index: int) -> TableDict:
    return graph(model)["Tensors"][index]


def operator(model: TableDict) -> TableDict:
    return graph(model)["Operators"][0]


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


# what is decoded


def test_a_small_model_is_decoded_in_full(tiny: TableDict, write_model: Writer) -> None:
    model = read_tflite(write_model(tiny), "tiny.tflite")
    quantization = Quantization((0.5,), (-3,))
    (subgraph,) = model.subgraphs
    assert (model.file, model.description) == ("tiny.tflite", "tiny")
    assert model.metadata == {"note": b"\1\2\3\4"}
    assert model.signatures == (
        RawSignature("serving_default", 0, (("in", 0),), (("out", 2),)),
    )
    assert (subgraph.name, subgraph.inputs, subgraph.outputs) == ("main", (0,), (2,))
    assert subgraph.tensors == (
        RawTensor(0, "x", (1, 4), "int8", quantization, shape_signature=(-1, 4)),
        RawTensor(1, "bias", (4,), "int8", quantization, buffer=b"\1\2\3\4"),
        RawTensor(2, "y", (1, 4), "int8", quantization),
    )
    assert subgraph.nodes == (
        RawNode(
            op="ADD",
            version=2,
            inputs=(0, 1),
            outputs=(2,),
            options={"fused_activation_function": "RELU", "pot_scale_int16": True},
            span=Span("tiny.tflite", 0, 0, "y"),
        ),
    )


def test_absent_options_have_schema_defaults(
    tiny: TableDict, write_model: Writer
) -> None:
    del operator(tiny)["BuiltinOptions"], operator(tiny)["BuiltinOptionsType"]
    node = read_tflite(write_model(tiny), "t").subgraphs[0].nodes[0]
    assert node.options == {
        "fused_activation_function": "NONE",
        "pot_scale_int16": True,
    }
    tiny["OperatorCodes"][0]["BuiltinCode"] = OPERATORS.index("CONV_2D")
    node = read_tflite(write_model(tiny), "t").subgraphs[0].nodes[0]
    assert node.op == "CONV_2D"
    assert (node.options["dilation_h_factor"], node.options["padding"]) == (1, "SAME")


def test_operator_codes_beyond_the_first_field_are_decoded(
    tiny: TableDict, write_model: Writer
) -> None:
    del operator(tiny)["BuiltinOptions"], operator(tiny)["BuiltinOptionsType"]
    code = tiny["OperatorCodes"][0]
    code.update(DeprecatedBuiltinCode=127, BuiltinCode=OPERATORS.index("GELU"))
    assert read_tflite(write_model(tiny), "t").subgraphs[0].nodes[0].op == "GELU"
    code.update(BuiltinCode=9999)
    assert (
        read_tflite(write_model(tiny), "t").subgraphs[0].nodes[0].op == "BUILTIN_9999"
    )


def test_custom_operators_keep_name_and_bytes(
    tiny: TableDict, write_model: Writer
) -> None:
    del operator(tiny)["BuiltinOptions"], operator(tiny)["BuiltinOptionsType"]
    tiny["OperatorCodes"][0].update(
        DeprecatedBuiltinCode=32, CustomCode="SignalFilterBank"
    )
    operator(tiny)["CustomOptions"] = np.array([7, 8], np.uint8)
    node = read_tflite(write_model(tiny), "t").subgraphs[0].nodes[0]
    assert (node.op, node.custom_options) == ("custom:SignalFilterBank", b"\7\x08")


def test_an_optional_input_may_be_omitted(tiny: TableDict, write_model: Writer) -> None:
    operator(tiny)["Inputs"] = ints(0, -1)
    assert read_tflite(write_model(tiny), "t").subgraphs[0].nodes[0].inputs == (0, -1)


def test_channel_scales_keep_their_axis(tiny: TableDict, write_model: Writer) -> None:
    tensor(tiny, 1)["Quantization"] = {
        "_": "QuantizationParameters",
        "Scale": np.array([0.1, 0.2, 0.3, 0.4], np.float32),
        "ZeroPoint": np.zeros(4, np.int64),
    }
    quantization = (
        read_tflite(write_model(tiny), "t").subgraphs[0].tensors[1].quantization
    )
    assert quantization == Quantization(
        tuple(float(np.float32(s)) for s in (0.1, 0.2, 0.3, 0.4)), (0, 0, 0, 0), 0
    )


@pytest.mark.parametrize("scales", [[], [0.0]])
def test_empty_or_zero_scales_mean_unquantized(
    tiny: TableDict, write_model: Writer, scales: list[float]
) -> None:
    tensor(tiny, 0)["Quantization"]["Scale"] = np.array(scales, np.float32)
    assert (
        read_tflite(write_model(tiny), "t").subgraphs[0].tensors[0].quantization is None
    )


def test_a_constant_without_elements_is_a_constant(
    tiny: TableDict, write_model: Writer
) -> None:
    tensor(tiny, 1).update(Shape=ints(0), Buffer=0)
    assert read_tflite(write_model(tiny), "t").subgraphs[0].tensors[1].buffer == b""


def test_large_buffers_outside_of_the_tables_are_read(
    tiny: TableDict, write_model: Writer
) -> None:
    size = len(write_model(tiny | {"Buffers": [{"_": "Buffer"}, _far_buffer(1 << 20)]}))
    tiny["Buffers"][1] = _far_buffer(size)
    data = write_model(tiny) + b"\4\3\2\1"
    assert read_tflite(data, "t").subgraphs[0].tensors[1].buffer == b"\4\3\2\1"
    with pytest.raises(
        ModelError, match=r"buffers\[1\]\.offset.*4 bytes at \d+ reach past"
    ):
        read_tflite(data[:-1], "t")


def _far_buffer(offset: int) -> TableDict:
    return {"_": "Buffer", "Offset": offset, "Size": 4}


@pytest.mark.parametrize(
    ("shape", "signature", "axes"),
    [
        ((1, 4), (), ()),
        ((1, 4), (-1, 4), ()),
        ((1, 1), (-1, -1), (1,)),
        ((2, 4), (-1, 4), (0,)),
        ((-1, 4), (), (0,)),
        ((), (), ()),
    ],
)
def test_only_a_batch_axis_of_size_one_is_static(
    shape: tuple[int, ...], signature: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    assert (
        RawTensor(0, "x", shape, "int8", shape_signature=signature).dynamic_axes == axes
    )


def test_a_dynamic_shape_is_decoded(tiny: TableDict, write_model: Writer) -> None:
    tensor(tiny, 0).update(Shape=ints(-1, 4))
    assert read_tflite(write_model(tiny), "t").subgraphs[0].tensors[0].dynamic_axes == (
        0,
    )


# what is refused: one file per rule


def _scales(
    model: TableDict, index: int, scales: list[float], zero_points: list[int]
) -> None:
    tensor(model, index)["Quantization"].update(
        Scale=np.array(scales, np.float32), ZeroPoint=np.array(zero_points, np.int64)
    )


def _call(model: TableDict, target: int) -> None:
    model["OperatorCodes"].append(
        {"_": "OperatorCode", "BuiltinCode": OPERATORS.index("CALL")}
    )
    caller = {"_": "Operator", "OpcodeIndex": 1, "BuiltinOptionsType": 16}
    caller["BuiltinOptions"] = {"_": "CallOptions", "Subgraph": target}
    graph(model)["Operators"].append(caller)


SCHEDULES: dict[str, tuple[Edit, str]] = {
    "version": (
        lambda m: m.update(Version=2),
        "t: version: the model is broken: schema version 2 is not 3.",
    ),
    "no subgraph": (
        lambda m: m.update(Subgraphs=[]),
        "t: the model is broken: it has no subgraph.",
    ),
    "opcode index": (
        lambda m: operator(m).update(OpcodeIndex=5),
        "t: subgraphs[0].operators[0].opcode_index: the model is broken: "
        "5 is out of range: there are 1.",
    ),
    "negative opcode": (
        lambda m: m["OperatorCodes"][0].update(
            DeprecatedBuiltinCode=-1, BuiltinCode=-2
        ),
        "t: operator_codes[0].builtin_code: the model is broken: -1 is not an operator code.",
    ),
    "buffer index": (
        lambda m: tensor(m, 1).update(Buffer=2),
        "t: subgraphs[0].tensors[1].buffer: the model is broken: 2 is out of range: there are 2.",
    ),
    "buffer size": (
        lambda m: tensor(m, 1).update(Shape=ints(5)),
        "t: subgraphs[0].tensors[1].buffer: the model is broken: "
        "[5] of int8 takes 5 bytes, its buffer has 4.",
    ),
    "buffer size of halves": (
        lambda m: tensor(m, 1).update(Shape=ints(9), Type=17),
        "t: subgraphs[0].tensors[1].buffer: the model is broken: "
        "[9] of int4 takes 5 bytes, its buffer has 4.",
    ),
    "dynamic constant": (
        lambda m: tensor(m, 1).update(Shape=ints(-1)),
        "t: subgraphs[0].tensors[1].shape: the model is broken: "
        "a constant has the dynamic shape [-1].",
    ),
    "negative size": (
        lambda m: tensor(m, 0).update(Shape=ints(1, -4)),
        "t: subgraphs[0].tensors[0].shape: the model is broken: [1, -4] has a negative size.",
    ),
    "huge shape": (
        lambda m: tensor(m, 0).update(Shape=ints(1 << 30, 1 << 30)),
        "t: subgraphs[0].tensors[0].shape: the model is broken: "
        "[1073741824, 1073741824] of int8 is more than 268435456 bytes.",
    ),
    "huge shape hidden by zero": (
        lambda m: tensor(m, 0).update(Shape=ints(0, 1 << 30, 1 << 30)),
        "t: subgraphs[0].tensors[0].shape: the model is broken: "
        "[0, 1073741824, 1073741824] of int8 is more than 268435456 bytes.",
    ),
    "rank": (
        lambda m: tensor(m, 0).update(Shape=ints(*[1] * 9)),
        "t: subgraphs[0].tensors[0].shape: the model is broken: it has rank 9, beyond 8.",
    ),
    "element type": (
        lambda m: tensor(m, 0).update(Type=77),
        "t: subgraphs[0].tensors[0].type: the model is broken: 77 is not a valid TensorType.",
    ),
    "zero points missing": (
        lambda m: tensor(m, 0)["Quantization"].pop("ZeroPoint"),
        "t: subgraphs[0].tensors[0].quantization.zero_point: the model is broken: "
        "0 zero points for 1 scales.",
    ),
    "negative scale": (
        lambda m: _scales(m, 0, [-0.5], [0]),
        "t: subgraphs[0].tensors[0].quantization.scale: the model is broken: "
        "-0.5 is not a positive finite number.",
    ),
    "scale is nan": (
        lambda m: _scales(m, 0, [math.nan], [0]),
        "t: subgraphs[0].tensors[0].quantization.scale: the model is broken: "
        "nan is not a positive finite number.",
    ),
    "scales do not fit": (
        lambda m: _scales(m, 1, [0.5] * 3, [0] * 3),
        "t: subgraphs[0].tensors[1].quantization.quantized_dimension: the model is broken: "
        "3 scales do not fit dimension 0 of [4].",
    ),
    "quantized axis": (
        lambda m: (
            _scales(m, 1, [0.5] * 4, [0] * 4),
            tensor(m, 1)["Quantization"].update(QuantizedDimension=1),
        ),
        "t: subgraphs[0].tensors[1].quantization.quantized_dimension: the model is broken: "
        "4 scales do not fit dimension 1 of [4].",
    ),
    "graph input": (
        lambda m: graph(m).update(Inputs=ints(3)),
        "t: subgraph 0, inputs: the model is broken: tensor 3 does not exist; there are 3.",
    ),
    "graph output": (
        lambda m: graph(m).update(Outputs=ints(-1)),
        "t: subgraph 0, outputs: the model is broken: tensor -1 does not exist; there are 3.",
    ),
    "operator input": (
        lambda m: operator(m).update(Inputs=ints(0, -2)),
        "t: subgraph 0, node 0 (ADD): the model is broken: tensor -2 does not exist; there are 3.",
    ),
    "operator output": (
        lambda m: operator(m).update(Outputs=ints(-1)),
        "t: subgraph 0, node 0 (ADD): the model is broken: tensor -1 does not exist; there are 3.",
    ),
    "read before written": (
        lambda m: operator(m).update(Inputs=ints(0, 2)),
        "t: subgraph 0, node 0 (ADD): the model is broken: "
        "tensor 2 (y) is read before anything has written it.",
    ),
    "output never written": (
        lambda m: graph(m).update(Operators=[]),
        "t: subgraph 0, outputs: the model is broken: "
        "tensor 2 (y) is read before anything has written it.",
    ),
    "written twice": (
        lambda m: operator(m).update(Outputs=ints(2, 2)),
        "t: subgraph 0, node 0 (ADD): the model is broken: tensor 2 (y) is defined a second time.",
    ),
    "constant written": (
        lambda m: operator(m).update(Outputs=ints(1)),
        "t: subgraph 0, node 0 (ADD): the model is broken: "
        "tensor 1 (bias) is defined a second time.",
    ),
    "a name of two lines": (
        lambda m: (tensor(m, 2).update(Name="a\nb"), graph(m).update(Operators=[])),
        "t: subgraph 0, outputs: the model is broken: "
        "tensor 2 ('a\\nb') is read before anything has written it.",
    ),
    "subgraph reference": (
        lambda m: _call(m, 4),
        "t: subgraph 0, node 1: the model is broken: it calls subgraph 4, which does not exist.",
    ),
    "subgraph ring": (
        lambda m: _call(m, 0),
        "t: subgraph 0: the model is broken: its call of subgraph 0 is recursive.",
    ),
}
HINT = " Try: export the model again, or fetch it again if it was downloaded."


@pytest.mark.parametrize("rule", SCHEDULES)
def test_each_violated_rule_raises_one_error_with_its_location(
    rule: str, tiny: TableDict, write_model: Writer
) -> None:
    edit, message = SCHEDULES[rule]
    edit(tiny)
    with pytest.raises(ModelError) as caught:
        read_tflite(write_model(tiny), "t")
    assert str(caught.value) == message + HINT


def test_the_tables_agree_with_the_published_bindings() -> None:
    tflite = pytest.importorskip("tflite")
    for index, name in enumerate(OPERATORS):
        assert getattr(tflite.BuiltinOperator, name) == index
    for index, name in OPTION_TABLES.items():
        assert getattr(tflite.BuiltinOptions, name) == index
    for index, name in enumerate(ENUMERATIONS["TensorType"]):
        assert getattr(tflite.TensorType, name.upper()) == index
    for table, fields in TABLES.items():
        for field in fields.values():
            method = "".join(
                part[:1].upper() + part[1:] for part in field.name.split("_")
            )
            assert hasattr(getattr(tflite, table), method), f"{table}.{field.name}"


def test_every_operator_of_the_options_map_exists() -> None:
    assert set(OPTIONS_OF_OPERATOR) <= set(OPERATORS)
    assert set(OPTIONS_OF_OPERATOR.values()) <= set(TABLES)
    assert set(ELEMENT_BITS) <= set(ENUMERATIONS["TensorType"])


@pytest.mark.models
@pytest.mark.parametrize("name", MODELS)
def test_the_mlperf_models_are_decoded_like_litert_does(
    name: str, model_path: Callable[[str], Path]
) -> None:
    interpreters = pytest.importorskip("ai_edge_litert.interpreter")
    data = model_path(name).read_bytes()
    subgraph = read_tflite(data, name).subgraphs[0]
    interpreter = interpreters.Interpreter(
        model_content=data,
        experimental_op_resolver_type=interpreters.OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=True,
    )
    interpreter.allocate_tensors()
    details = {d["index"]: d for d in interpreter.get_tensor_details()}
    for tensor_ in subgraph.tensors:
        _compare_tensor(tensor_, details[tensor_.index], interpreter)
    assert subgraph.inputs == tuple(d["index"] for d in interpreter.get_input_details())
    assert subgraph.outputs == tuple(
        d["index"] for d in interpreter.get_output_details()
    )
    ops = [d for d in interpreter._get_ops_details() if d["op_name"] != "DELEGATE"]
    assert [node.op for node in subgraph.nodes] == [d["op_name"] for d in ops]
    assert [list(n.inputs) for n in subgraph.nodes] == [list(d["inputs"]) for d in ops]
    assert not any(t.dynamic_axes for t in subgraph.tensors)


def _compare_tensor(ours: RawTensor, theirs: dict[str, Any], interpreter: Any) -> None:
    assert ours.name == theirs["name"]
    assert ours.shape == tuple(theirs["shape"])
    assert ours.dtype == np.dtype(theirs["dtype"]).name
    if ours.shape_signature:
        assert ours.shape_signature == tuple(theirs["shape_signature"])
    parameters = theirs["quantization_parameters"]
    scales = ours.quantization.scales if ours.quantization else ()
    zero_points = ours.quantization.zero_points if ours.quantization else ()
    assert scales == tuple(float(s) for s in parameters["scales"])
    assert zero_points == tuple(int(z) for z in parameters["zero_points"])
    if ours.quantization and ours.quantization.axis is not None:
        assert ours.quantization.axis == parameters["quantized_dimension"]
    if ours.buffer is not None:
        assert ours.buffer == interpreter.get_tensor(ours.index).tobytes()
