"""Exact widening of int4 (two to a byte, lower half first), float16, int16 biases.

Variables of these types are not changed; they are refused later.
"""

from dataclasses import replace

import numpy as np

from firmwright.frontends.tflite.decoded_model import (
    NO_TENSOR,
    RawNode,
    RawSubgraph,
    RawTensor,
)

_BIAS = 3


def widen_constants(graph: RawSubgraph) -> RawSubgraph:
    tensors = [_from_int4(tensor) for tensor in graph.tensors]
    nodes: list[RawNode] = []
    for node in graph.nodes:
        _widen_bias(node, tensors)
        source = _float16_constant(node, tensors)
        if source is None:
            nodes.append(node)
            continue
        halves = np.frombuffer(source, "<f2").astype("<f4")
        place = node.outputs[0]
        tensors[place] = replace(tensors[place], buffer=halves.tobytes())
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))


def _from_int4(tensor: RawTensor) -> RawTensor:
    if tensor.dtype != "int4" or tensor.buffer is None:
        return tensor
    packed = np.frombuffer(tensor.buffer, np.uint8)
    halves = np.stack([packed << 4, packed & 0xF0], axis=-1).view(np.int8) >> 4
    count = int(np.prod(tensor.shape))
    return replace(tensor, dtype="int8", buffer=halves.reshape(-1)[:count].tobytes())


def _widen_bias(node: RawNode, tensors: list[RawTensor]) -> None:
    """Widen the int16 bias of a transposed convolution to int64, as TFLM does."""
    if node.op != "TRANSPOSE_CONV" or len(node.inputs) <= _BIAS:
        return
    if node.inputs[_BIAS] == NO_TENSOR:
        return
    bias = tensors[node.inputs[_BIAS]]
    if bias.dtype == "int16" and bias.buffer is not None:
        values = np.frombuffer(bias.buffer, "<i2").astype("<i8")
        tensors[bias.index] = replace(bias, dtype="int64", buffer=values.tobytes())


def _float16_constant(node: RawNode, tensors: list[RawTensor]) -> bytes | None:
    if node.op != "DEQUANTIZE" or len(node.inputs) != 1 or len(node.outputs) != 1:
        return None
    if node.inputs[0] == NO_TENSOR:
        return None
    source = tensors[node.inputs[0]]
    result = tensors[node.outputs[0]]
    if (source.dtype, result.dtype) != ("float16", "float32"):
        return None
    return source.buffer if source.shape == result.shape else None
