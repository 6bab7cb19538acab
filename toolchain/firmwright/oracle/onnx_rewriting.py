"""Rewritings of ONNX models that ONNX Runtime refuses, or computes with saturation.

Products of integers saturate on some CPUs, and its Python package has no arrays of some
types.

All keep every value of every result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from firmwright.base.array_files import file_dtype
from firmwright.base.dtypes import Array, find_dtype

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True, slots=True)
class ProductOperands:
    """Positions of the inputs that determine a product of integers."""

    activations_zero_point: int
    weights: int
    weights_zero_point: int


_OPERANDS: Mapping[str, ProductOperands] = {
    "ConvInteger": ProductOperands(2, 1, 3),
    "MatMulInteger": ProductOperands(2, 1, 3),
    "MatMulIntegerToFloat": ProductOperands(4, 1, 5),
    "DynamicQuantizeMatMul": ProductOperands(0, 1, 3),
    "QAttention": ProductOperands(6, 1, 7),
    "QGemm": ProductOperands(2, 3, 5),
    "QLinearConv": ProductOperands(2, 3, 5),
    "QLinearMatMul": ProductOperands(2, 3, 5),
}
_REAL_PRODUCTS = frozenset({"Conv", "Gemm", "MatMul"})
"""Products of the results of two DequantizeLinear, which ONNX Runtime fuses."""
_DEQUANTIZE_WEIGHTS, _DEQUANTIZE_ZERO_POINT = 0, 2


@dataclass(frozen=True, slots=True)
class _IntegerWeights:
    """Where weights of a product and their zero point are inputs of `node`.

    `activations` names the tensor whose element type is that of the activations, "" if
    there is none. `zero_point_shape` is that of a zero point that the file leaves out.
    """

    node: onnx.NodeProto
    weights: int
    zero_point: int
    activations: str
    zero_point_shape: tuple[int, ...]


def with_scalar_pools(model: bytes) -> bytes:
    """Make scales and zero points around pools scalars.

    Return the same bytes if there are none.

    ONNX Runtime refuses its own QLinearAveragePool with vectors of one element.
    """
    import onnx

    proto = onnx.ModelProto.FromString(model)
    makers = _makers(proto.graph)
    readers: dict[str, onnx.NodeProto] = {}
    for node in proto.graph.node:
        for name in node.input:
            readers[name] = node
    vectors = [tensor for tensor in proto.graph.initializer if list(tensor.dims) == [1]]
    scalars = {tensor.name: f"{tensor.name}_scalar" for tensor in vectors}
    nodes: list[onnx.NodeProto] = []
    for node in proto.graph.node:
        if node.op_type == "AveragePool" and node.input[0] in makers:
            own = onnx.NodeProto()
            own.CopyFrom(makers[node.input[0]])
            own.name, own.output[0] = "", f"{node.output[0]}_scalar_input"
            node.input[0] = own.output[0]
            for item in filter(None, (own, readers.get(node.output[0]))):
                item.input[1:] = [scalars.get(name, name) for name in item.input[1:]]
            nodes.append(own)
        nodes.append(node)
    if len(nodes) == len(proto.graph.node):
        return model
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    for tensor in vectors:
        scalar = proto.graph.initializer.add()
        scalar.CopyFrom(tensor)
        scalar.name = scalars[tensor.name]
        del scalar.dims[:]
    return bytes(proto.SerializeToString())


def with_array_types(model: bytes) -> bytes:
    """Replace storage types of inputs and outputs by those that compute them.

    ONNX Runtime's Python package takes and returns no arrays of them, float16 excepted.
    Return the same bytes if there are none.
    """
    import onnx

    proto = onnx.ModelProto.FromString(model)
    graph = proto.graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs: list[onnx.NodeProto] = []
    outputs: list[onnx.NodeProto] = []
    for items, casts in ((graph.input, inputs), (graph.output, outputs)):
        for item in items:
            elements = item.type.tensor_type
            own, plain = elements.elem_type, _array_type(elements.elem_type)
            if plain == own or item.name in constants:
                continue
            stored = f"{item.name}/stored"
            _rename(graph, item.name, stored)
            elements.elem_type = plain
            names, to = ((item.name, stored), own)
            if casts is outputs:
                names, to = ((stored, item.name), plain)
            casts.append(onnx.helper.make_node("Cast", names[:1], names[1:], to=to))
    if not inputs and not outputs:
        return model
    nodes = [*inputs, *graph.node, *outputs]
    del graph.node[:]
    graph.node.extend(nodes)
    return bytes(proto.SerializeToString())


def _array_type(element: int) -> int:
    """Return ONNX's number of the type whose arrays hold elements of the type."""
    import onnx

    try:
        kind = onnx.helper.tensor_dtype_to_np_dtype(element)
    except KeyError:
        return element
    dtype = find_dtype(kind.name)
    if dtype is None or file_dtype(dtype) is dtype:
        return element
    return int(onnx.helper.np_dtype_to_tensor_dtype(file_dtype(dtype).np))


def _rename(graph: onnx.GraphProto, name: str, new: str) -> None:
    """Rename a value in its nodes, and in the graphs inside of them."""
    for node in graph.node:
        for names in (node.input, node.output):
            for index, known in enumerate(names):
                if known == name:
                    names[index] = new
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _rename(inner, name, new)


def with_unsigned_weights(model: bytes) -> bytes:
    """Store int8 weights of uint8 activations as uint8, so that CPUs do not saturate.

    The products are the same, and exact on every CPU.

    Return the same bytes if there are none.
    """
    import onnx

    proto = onnx.ModelProto.FromString(model)
    tensors = {tensor.name: tensor for tensor in proto.graph.initializer}
    products = list(_integer_weights(proto.graph, tensors))
    if not products:
        return model
    for found in products:
        inputs = found.node.input
        inputs.extend([""] * (found.zero_point + 1 - len(inputs)))
        no_offset = np.zeros(found.zero_point_shape, np.int8)
        for index in (found.weights, found.zero_point):
            tensor = tensors.get(inputs[index])
            values = no_offset if tensor is None else onnx.numpy_helper.to_array(tensor)
            inputs[index] = f"{found.node.output[0]}_unsigned_{index}"
            shifted = onnx.numpy_helper.from_array(_plus_128(values), inputs[index])
            proto.graph.initializer.append(shifted)
    return bytes(proto.SerializeToString())


def _integer_weights(
    graph: onnx.GraphProto, tensors: Mapping[str, onnx.TensorProto]
) -> Iterator[_IntegerWeights]:
    """Yield the int8 weights that are multiplied by uint8 activations."""
    import onnx

    kinds = onnx.TensorProto
    makers = _makers(graph)
    types = {value.name: value.type.tensor_type.elem_type for value in graph.input}
    types |= {name: tensor.data_type for name, tensor in tensors.items()}
    for node in graph.node:
        found = _weights_of(node, makers, tensors)
        if found is None:
            continue
        maker = makers.get(found.activations)
        # The operators named Dynamic... quantize activations to uint8 themselves.
        is_unsigned = "Dynamic" in node.op_type
        if maker is not None and "Dynamic" in maker.op_type:
            is_unsigned = True
        if types.get(found.activations) == kinds.UINT8:
            is_unsigned = True
        weights = tensors.get(found.node.input[found.weights])
        if is_unsigned and weights is not None and weights.data_type == kinds.INT8:
            yield found


def _makers(graph: onnx.GraphProto) -> dict[str, onnx.NodeProto]:
    """Return the node that computes each result."""
    makers: dict[str, onnx.NodeProto] = {}
    for node in graph.node:
        for name in node.output:
            makers[name] = node
    return makers


def _weights_of(
    node: onnx.NodeProto,
    makers: Mapping[str, onnx.NodeProto],
    tensors: Mapping[str, onnx.TensorProto],
) -> _IntegerWeights | None:
    """Return the weights of a product, None for every other operator."""
    operands = _OPERANDS.get(node.op_type)
    if operands is not None:
        activations = _input(node, operands.activations_zero_point) or _input(node, 0)
        return _IntegerWeights(
            node, operands.weights, operands.weights_zero_point, activations, ()
        )
    if node.op_type not in _REAL_PRODUCTS:
        return None
    made = [makers[name] for name in node.input[:2] if name in makers]
    if [maker.op_type for maker in made] != ["DequantizeLinear"] * 2:
        return None
    activations, weights = made
    scale = tensors.get(weights.input[1])
    return _IntegerWeights(
        weights,
        _DEQUANTIZE_WEIGHTS,
        _DEQUANTIZE_ZERO_POINT,
        activations=_input(activations, _DEQUANTIZE_ZERO_POINT),
        zero_point_shape=() if scale is None else tuple(scale.dims),
    )


def _input(node: onnx.NodeProto, index: int) -> str:
    """Return the name of an input, "" if the node leaves it out."""
    return str(node.input[index]) if index < len(node.input) else ""


def _plus_128(values: Array) -> Array:
    return (values.astype(np.int16) + 128).astype(np.uint8)
