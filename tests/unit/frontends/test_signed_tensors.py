"""uint8 tensors of TFLite models as int8."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from firmwright.base.errors import UnsupportedError
from firmwright.base.quant import Quantization
from firmwright.frontends.tflite.decoded_model import (
    NO_TENSOR,
    RawModel,
    RawNode,
    RawSubgraph,
    RawTensor,
)
from firmwright.frontends.tflite.importer import import_model
from firmwright.frontends.tflite.signed_tensors import make_signed
from firmwright.ir.core import Span
from firmwright.ops.registry import op_table

QUANT = Quantization((0.5,), (3,))
X = RawTensor(0, "x", (1, 2, 2, 1), "uint8", QUANT)
Y = replace(X, index=1, name="y")
PLAIN = {"fused_activation_function": "NONE"}


def _graph(tensors: list[RawTensor], *nodes: RawNode) -> RawSubgraph:
    return RawSubgraph("main", tuple(tensors), (0,), (len(tensors) - 1,), nodes)


def _node(
    op: str, inputs: tuple[int, ...], *outputs: int, **options: object
) -> RawNode:
    return RawNode(op, 1, inputs, outputs, options, Span("m", 0, 0, ""))  # type: ignore[arg-type]


def _ops(graph: RawSubgraph) -> list[str]:
    return [node.op for node in make_signed(graph).nodes]


def test_inputs_and_outputs_remain_uint8_and_inner_tensors_become_int8() -> None:
    inner = replace(Y, name="inner")
    last = replace(Y, index=2)
    graph = make_signed(
        _graph([X, inner, last], _node("RELU", (0,), 1), _node("RELU", (1,), 2))
    )
    assert [node.op for node in graph.nodes] == ["QUANTIZE", "RELU", "RELU", "QUANTIZE"]
    kinds = {
        tensor.name: (tensor.dtype, tensor.quantization) for tensor in graph.tensors
    }
    assert kinds["x"] == kinds["y"] == ("uint8", QUANT)
    assert kinds["inner"] == kinds["x/int8"] == ("int8", Quantization((0.5,), (-125,)))


def test_constants_are_128_lower() -> None:
    stored = np.array([0, 127, 128, 255], np.uint8)
    weights = RawTensor(1, "w", (1, 2, 2, 1), "uint8", QUANT, stored.tobytes())
    last = replace(Y, index=2)
    graph = make_signed(_graph([X, weights, last], _node("ADD", (0, 1), 2, **PLAIN)))
    data = graph.tensors[1].buffer
    assert data is not None
    assert np.frombuffer(data, np.int8).tolist() == [-128, -1, 0, 127]


def test_an_int8_model_with_uint8_at_its_interface_does_not_change() -> None:
    y = replace(Y, dtype="int8", quantization=Quantization((0.5,), (-125,)))
    graph = _graph([X, y], _node("QUANTIZE", (0,), 1))
    assert make_signed(graph).nodes == graph.nodes


def test_operators_of_stored_numbers_keep_uint8() -> None:
    y = replace(Y, dtype="int32", quantization=None)
    assert _ops(_graph([X, y], _node("CAST", (0,), 1))) == ["CAST"]


def test_inputs_of_another_scale_are_rescaled_before_a_concatenation() -> None:
    y = replace(Y, shape=(1, 2, 2, 2), quantization=Quantization((0.25,), (7,)))
    node = _node("CONCATENATION", (0, 0), 1, axis=3, **PLAIN)
    operators = ["QUANTIZE", "byte_table", "byte_table", "CONCATENATION", "QUANTIZE"]
    assert _ops(_graph([X, y], node)) == operators


def test_uint8_weights_of_a_float_layer_hold_twos_complement() -> None:
    stored = np.array([[255, 1]], np.uint8)
    tensors = [
        RawTensor(0, "x", (1, 2), "float32"),
        RawTensor(1, "w", (1, 2), "uint8", QUANT, stored.tobytes()),
        RawTensor(2, "y", (1, 1), "float32"),
    ]
    weights = make_signed(_graph(tensors, _node("FULLY_CONNECTED", (0, 1), 2))).tensors[
        1
    ]
    assert weights.buffer == stored.tobytes()
    assert (weights.dtype, weights.quantization) == ("int8", Quantization((0.5,), (0,)))


@pytest.mark.parametrize(
    "node",
    [
        _node(
            "RESIZE_BILINEAR", (0,), 1, align_corners=False, half_pixel_centers=False
        ),
        _node(
            "RESIZE_BILINEAR",
            (0, NO_TENSOR),
            1,
            align_corners=False,
            half_pixel_centers=False,
        ),
        _node("CONCATENATION", (0, NO_TENSOR), 1, axis=3, **PLAIN),
        _node("CONCATENATION", (), 1, axis=3, **PLAIN),
        _node("custom:TFLite_Detection_PostProcess", (0, NO_TENSOR), 1),
        _node("CONV_2D", (0,), 1, **PLAIN),
    ],
)
def test_incomplete_nodes_are_refused(node: RawNode) -> None:
    model = RawModel("m", "", (_graph([X, Y], node),))
    with pytest.raises(UnsupportedError):
        import_model(model, "m", b"", op_table())
