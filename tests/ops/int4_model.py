"""A model file with int4 weights, by the classes of the published schema."""

from __future__ import annotations

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

_AXES = {
    schema.BuiltinOperator.CONV_2D: 0,
    schema.BuiltinOperator.DEPTHWISE_CONV_2D: 3,
    schema.BuiltinOperator.FULLY_CONNECTED: 0,
}
"""The channel axis of the weights of each operator."""
_GREATEST = 7


def with_int4_weights(data: bytes) -> bytes:
    """Return the int8 model `data` with int4 weights in [-7, 7] and biases to match.

    The scale of each channel is chosen so that its greatest weight becomes 7.
    """
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
    graph = model.subgraphs[0]
    for operator in graph.operators:
        code = model.operatorCodes[operator.opcodeIndex]
        axis = _AXES.get(max(code.builtinCode, code.deprecatedBuiltinCode))
        if axis is not None:
            tensors = [
                graph.tensors[i] if i >= 0 else None for i in operator.inputs[1:3]
            ]
            _narrow(model, axis, *tensors)
    builder = flatbuffers.Builder(len(data))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _narrow(
    model: schema.ModelT,
    axis: int,
    weights: schema.TensorT,
    bias: schema.TensorT | None,
) -> None:
    values = np.moveaxis(_array(model, weights, np.int8), axis, 0)
    scales, reach = (
        np.asarray(weights.quantization.scale),
        np.abs(values.astype(np.int64)),
    )
    is_shared = len(scales) == 1
    greatest = reach.max() if is_shared else reach.reshape(len(values), -1).max(axis=1)
    factor = np.maximum(greatest, 1) / _GREATEST
    ratio = np.broadcast_to(factor, len(values))
    narrow = np.rint(values / ratio.reshape(-1, *[1] * (values.ndim - 1))).astype(
        np.int8
    )
    flat = np.moveaxis(narrow, 0, axis).reshape(-1)
    padded = np.pad(flat, (0, len(flat) % 2)).astype(np.uint8) & 15
    weights.type = schema.TensorType.INT4
    weights.quantization.scale = (scales * factor).astype(np.float32).reshape(-1)
    model.buffers[weights.buffer].data = padded[::2] | padded[1::2] << 4
    if bias is not None:
        sums = np.rint(_array(model, bias, np.int32) / ratio).astype(np.int32)
        bias.quantization.scale = bias.quantization.scale * factor.astype(np.float32)
        model.buffers[bias.buffer].data = sums.view(np.uint8)


def _array(model: schema.ModelT, tensor: schema.TensorT, dtype: type) -> np.ndarray:
    return (
        np.asarray(model.buffers[tensor.buffer].data, np.uint8)
        .view(dtype)
        .reshape(tensor.shape)
    )
