"""Computations of the importer: constants in narrow types, and folded calls."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.errors import UnsupportedError
from firmwright.base.quant import Quantization
from firmwright.frontends.tflite.decoded_model import (
    RawModel,
    RawNode,
    RawSubgraph,
    RawTensor,
)
from firmwright.frontends.tflite.importer import import_model
from firmwright.frontends.tflite.widen_constants import widen_constants
from firmwright.ir.core import Span
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.ops.registry import op_table


def _graph(
    tensors: list[RawTensor], nodes: list[RawNode], outputs: tuple[int, ...]
) -> RawSubgraph:
    return RawSubgraph("main", tuple(tensors), (0,), outputs, tuple(nodes))


def _node(op: str, inputs: tuple[int, ...], output: int, **options: object) -> RawNode:
    return RawNode(op, 1, inputs, (output,), options, Span("m", 0, 0, ""))  # type: ignore[arg-type]


def _constant(index: int, name: str, values: list[int]) -> RawTensor:
    data = np.array(values, np.int32)
    return RawTensor(index, name, data.shape, "int32", buffer=data.tobytes())


def _imported(graph: RawSubgraph) -> tuple[IRModule, Function]:
    module = import_model(RawModel("m", "", (graph,)), "m", b"", op_table())
    assert isinstance(module.entry, Function)
    return module, module.entry


def test_int4_constants_are_widened_lower_half_first() -> None:
    values = RawTensor(0, "w", (5,), "int4", buffer=bytes([0x71, 0x8F, 0x0E]))
    (tensor,) = widen_constants(_graph([values], [], ())).tensors
    assert tensor.dtype == "int8"
    assert tensor.buffer is not None
    assert np.frombuffer(tensor.buffer, np.int8).tolist() == [1, 7, -1, -8, -2]


def test_a_dequantized_float16_constant_becomes_float32() -> None:
    halves = np.array([1.5, -65504.0, 2.0**-24], np.float16)
    tensors = [
        RawTensor(0, "x", (3,), "float32"),
        RawTensor(1, "half", (3,), "float16", buffer=halves.tobytes()),
        RawTensor(2, "whole", (3,), "float32"),
        RawTensor(3, "y", (3,), "float32"),
    ]
    nodes = [
        _node("DEQUANTIZE", (1,), 2),
        _node("MUL", (0, 2), 3, fused_activation_function="NONE"),
    ]
    module, main = _imported(_graph(tensors, nodes, (3,)))
    assert [call.op for call in main.body] == ["mul"]
    assert module.constants["whole"].array().tolist() == [1.5, -65504.0, 2.0**-24]


def _reshape_by_computed_shape(outputs: tuple[int, ...]) -> RawSubgraph:
    """Build y = x (2x3x4) with the shape [shape(x)[0], -1], as converters write it."""
    tensors = [
        RawTensor(0, "x", (2, 3, 4), "float32"),
        RawTensor(1, "shape", (3,), "int32"),
        _constant(2, "zero", [0]),
        _constant(3, "one", [1]),
        RawTensor(4, "first", (), "int32"),
        RawTensor(5, "rest", (), "int32", buffer=np.int32(12).tobytes()),
        RawTensor(6, "packed", (2,), "int32"),
        RawTensor(7, "y", (2, 12), "float32"),
    ]
    masks = {"begin_mask": 0, "end_mask": 0, "ellipsis_mask": 0, "new_axis_mask": 0}
    nodes = [
        _node("SHAPE", (0,), 1, out_type="int32"),
        _node(
            "STRIDED_SLICE", (1, 2, 3, 3), 4, **masks, shrink_axis_mask=1, offset=False
        ),
        _node("PACK", (4, 5), 6, values_count=2, axis=0),
        _node("RESHAPE", (0, 6), 7, new_shape=()),
    ]
    return _graph(tensors, nodes, outputs)


def test_computed_shapes_are_folded() -> None:
    module, main = _imported(_reshape_by_computed_shape((7,)))
    assert [call.op for call in main.body] == ["reshape"]
    assert module.constants["packed"].array().tolist() == [2, 12]


def _reshape_of_onnx_tf() -> RawSubgraph:
    """Build y = x (2x3x4) with ONNX's shape [shape(x)[0], -1], as onnx-tf writes it.

    Sizes of 0 in ONNX's shape stand for those of x, which a sparse tensor adds. Here
    the shape has none: the tensors between WHERE and SPARSE_TO_DENSE are empty.
    """

    def number(index: int, name: str, values: list[int]) -> RawTensor:
        data = np.array(values, np.int64)
        return RawTensor(index, name, data.shape, "int64", buffer=data.tobytes())

    tensors = [
        RawTensor(0, "x", (2, 3, 4), "float32"),
        RawTensor(1, "shape", (3,), "int64"),
        RawTensor(2, "zero", (), "int64", buffer=bytes(8)),
        RawTensor(3, "first", (), "int64"),
        _constant(4, "vector", [1]),
        RawTensor(5, "firsts", (1,), "int64"),
        number(6, "rest", [-1]),
        RawTensor(7, "stated", (2,), "int64"),
        RawTensor(8, "is_copied", (2,), "bool"),
        RawTensor(9, "places", (1, 1), "int64", shape_signature=(-1, 1)),
        _constant(10, "flat", [-1]),
        RawTensor(11, "flat_places", (1,), "int64", shape_signature=(-1,)),
        RawTensor(12, "sizes", (1,), "int64", shape_signature=(-1,)),
        number(13, "rank", [2]),
        RawTensor(14, "copied", (2,), "int64"),
        RawTensor(15, "sum", (2,), "int64"),
        RawTensor(16, "target", (2,), "int32"),
        RawTensor(17, "y", (1, 1), "float32", shape_signature=(-1, -1)),
    ]
    nodes = [
        _node("SHAPE", (0,), 1, out_type="int64"),
        _node("GATHER", (1, 2), 3, axis=0, batch_dims=0),
        _node("RESHAPE", (3, 4), 5, new_shape=()),
        _node("CONCATENATION", (5, 6), 7, axis=0, fused_activation_function="NONE"),
        _node("EQUAL", (7, 2), 8),
        _node("WHERE", (8,), 9),
        _node("RESHAPE", (9, 10), 11, new_shape=()),
        _node("GATHER", (1, 11), 12, axis=0, batch_dims=0),
        _node("SPARSE_TO_DENSE", (9, 13, 12, 2), 14, validate_indices=False),
        _node("ADD", (7, 14), 15, fused_activation_function="NONE"),
        _node("CAST", (15,), 16),
        _node("RESHAPE", (0, 16), 17, new_shape=()),
    ]
    return _graph(tensors, nodes, (17,))


def test_the_shape_that_onnx_tf_computes_is_folded() -> None:
    _, main = _imported(_reshape_of_onnx_tf())
    assert [call.op for call in main.body] == ["reshape"]
    assert main.results[0].type.shape == (2, 12)


def test_a_result_without_elements_is_refused() -> None:
    graph = _reshape_of_onnx_tf()
    with pytest.raises(UnsupportedError, match="without elements"):
        _imported(_graph(list(graph.tensors), list(graph.nodes), (9,)))


def _sparse_matrix(places: np.ndarray, shape: list[int], value: float) -> RawSubgraph:
    """Build the maximum of x (3x3, int32) and a sparse tensor with one value."""
    kind = "float32" if isinstance(value, float) else "int32"
    stored = np.array([value], kind)
    tensors = [
        RawTensor(0, "x", (3, 3), "int32"),
        RawTensor(1, "at", places.shape, places.dtype.name, buffer=places.tobytes()),
        _constant(2, "shape", shape),
        RawTensor(3, "value", (1,), kind, buffer=stored.tobytes()),
        _constant(4, "default", [0]),
        RawTensor(5, "dense", (3, 3), "int32"),
        RawTensor(6, "y", (3, 3), "int32"),
    ]
    nodes = [_node("SPARSE_TO_DENSE", (1, 2, 3, 4), 5), _node("MAXIMUM", (0, 5), 6)]
    return _graph(tensors, nodes, (6,))


@pytest.mark.parametrize("places", [[[0, 5]], [[0, -1]], [[0]]])
def test_a_sparse_tensor_with_indices_outside_is_refused(
    places: list[list[int]],
) -> None:
    graph = _sparse_matrix(np.array(places, np.int32), [3, 3], 7)
    with pytest.raises(UnsupportedError, match="indices outside of the result"):
        _imported(graph)


@pytest.mark.parametrize(
    ("places", "shape", "value", "reason"),
    [
        (np.zeros((1, 1, 2), np.int32), [3, 3], 7, "indices of int32 .1, 1, 2."),
        (np.zeros((1, 2), np.float32), [3, 3], 7, "indices of float32"),
        (np.zeros((1, 2), np.bool_), [3, 3], 7, "indices of bool"),
        (np.zeros((1, 0), np.int32), [], 7, "the shape .]"),
        (np.zeros((1, 2), np.int32), [3, 3], 7.5, "of different types"),
    ],
)
def test_a_malformed_sparse_tensor_is_refused(
    places: np.ndarray, shape: list[int], value: float, reason: str
) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        _imported(_sparse_matrix(places, shape, value))


def test_a_product_of_int16_without_a_scale_is_zero() -> None:
    """LiteRT multiplies the sums by the scale 0; the converter writes such a FILL."""
    weights = np.arange(20, dtype=np.int8)
    tensors = [
        RawTensor(0, "x", (2, 4), "int16"),
        RawTensor(
            1, "w", (5, 4), "int8", Quantization((0.5,), (0,)), weights.tobytes()
        ),
        RawTensor(2, "y", (2, 5), "int16", Quantization((0.25,), (0,))),
    ]
    options = {
        "fused_activation_function": "NONE",
        "weights_format": "DEFAULT",
        "keep_num_dims": False,
        "quantized_bias_type": "int64",
    }
    node = _node("FULLY_CONNECTED", (0, 1, -1), 2, **options)
    _, main = _imported(_graph(tensors, [node], (2,)))
    assert [call.op for call in main.body] == ["fill"]
    assert main.results[0].type.shape == (2, 5)


def test_a_computed_shape_that_is_an_output_of_the_model_stays_a_call() -> None:
    module, main = _imported(_reshape_by_computed_shape((7, 6)))
    assert [call.op for call in main.body] == ["pack", "reshape"]
    assert "packed" not in module.constants


def test_a_large_result_of_small_constants_is_not_folded() -> None:
    tensors = [
        RawTensor(0, "x", (4096,), "int32"),
        _constant(1, "shape", [4096]),
        RawTensor(2, "seven", (), "int32", buffer=np.int32(7).tobytes()),
        RawTensor(3, "sevens", (4096,), "int32"),
        RawTensor(4, "y", (4096,), "int32"),
    ]
    nodes = [_node("FILL", (1, 2), 3), _node("MAXIMUM", (0, 3), 4)]
    _, main = _imported(_graph(tensors, nodes, (4,)))
    assert [call.op for call in main.body] == ["fill", "maximum"]


def test_unsupported_types_are_reported_with_a_remedy() -> None:
    tensors = [
        RawTensor(0, "x", (2, 3), "float16", None, None),
        RawTensor(1, "w", (4, 3), "float16", None, bytes(24)),
        RawTensor(2, "y", (2, 4), "float16", None, None),
    ]
    options = {"fused_activation_function": "NONE", "keep_num_dims": False}
    node = _node("FULLY_CONNECTED", (0, 1), 2, **options, weights_format="DEFAULT")
    with pytest.raises(UnsupportedError) as caught:
        _imported(_graph(tensors, [node], (2,)))
    assert "convert the model to float32" in caught.value.items[0].why


@pytest.mark.parametrize(
    "op", ["MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM"]
)
def test_random_numbers_are_refused_by_the_name_of_the_operator(op: str) -> None:
    result = "int64" if op == "MULTINOMIAL" else "float32"
    tensors = [
        RawTensor(0, "x", (2, 3), "float32"),
        _constant(1, "operand", [4] if op == "MULTINOMIAL" else [2, 4]),
        RawTensor(2, "y", (2, 4), result),
    ]
    inputs = (0, 1) if op == "MULTINOMIAL" else (1,)
    with pytest.raises(UnsupportedError, match=op) as raised:
        _imported(_graph(tensors, [_node(op, inputs, 2, seed=0, seed2=0)], (2,)))
    (item,) = raised.value.items
    assert item.op == op
    assert item.why.startswith("random numbers, which differ from run to run")
