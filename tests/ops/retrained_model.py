"""Model files with other weights, by the classes of the published schema.

The graph, the types and the quantization stay; only the bytes of weights and biases
change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

Array: TypeAlias = np.ndarray
Change: TypeAlias = Callable[[Array, np.random.Generator], Array]
"""Returns new values for the weights of a layer, which have the same shape."""

_LAYERS = (
    schema.BuiltinOperator.CONV_2D,
    schema.BuiltinOperator.DEPTHWISE_CONV_2D,
    schema.BuiltinOperator.FULLY_CONNECTED,
)
_DTYPES = {
    schema.TensorType.INT8: np.int8,
    schema.TensorType.INT32: np.int32,
    schema.TensorType.FLOAT32: np.float32,
}


def with_weights(data: bytes, change: Change, *, biases: Change | None = None) -> bytes:
    """Return the model `data` with the weights, and biases, that functions return."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
    graph, generator = model.subgraphs[0], np.random.default_rng(5)
    for operator in graph.operators:
        code = model.operatorCodes[operator.opcodeIndex]
        if max(code.builtinCode, code.deprecatedBuiltinCode) not in _LAYERS:
            continue
        for position, function in ((1, change), (2, biases)):
            place = operator.inputs[position] if position < len(operator.inputs) else -1
            if function is None or place < 0:
                continue
            tensor = graph.tensors[place]
            buffer = model.buffers[tensor.buffer]
            old = np.frombuffer(bytes(buffer.data), _DTYPES[tensor.type]).reshape(
                tensor.shape
            )
            new = np.ascontiguousarray(function(old, generator), old.dtype)
            buffer.data = np.frombuffer(new.tobytes(), np.uint8)
    builder = flatbuffers.Builder(len(data))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def shuffled(weights: Array, generator: np.random.Generator) -> Array:
    """Return the same values in another order, as after another training."""
    return generator.permutation(weights.reshape(-1)).reshape(weights.shape)


def near(values: Array, generator: np.random.Generator) -> Array:
    """Return values close to the old ones, as after more training, without -128."""
    if values.dtype == np.int8:
        return np.clip(values + generator.integers(-6, 7, values.shape), -127, 127)
    return values + values * generator.uniform(-0.05, 0.05, values.shape)


def with_some_lowest(weights: Array, generator: np.random.Generator) -> Array:
    """Return close values; the first tap is -1 in channel 0 and -128 in channel 1."""
    new = near(weights, generator)
    if len(new) > 1:
        tap = (0,) * (new.ndim - 1)
        new[(0, *tap)], new[(1, *tap)] = -1, -128
    return new


def random(weights: Array, generator: np.random.Generator) -> Array:
    """Return values of the whole range, -128 included; of floats, of a wide range."""
    if weights.dtype == np.float32:
        return generator.normal(
            scale=10.0 ** generator.integers(-3, 2), size=weights.shape
        )
    return generator.integers(-128, 128, weights.shape)


def lowest(weights: Array, generator: np.random.Generator) -> Array:
    return np.full(weights.shape, -128 if weights.dtype == np.int8 else -1e3)


def zeros(weights: Array, generator: np.random.Generator) -> Array:
    return np.zeros(weights.shape)


def with_dead_channels(weights: Array, generator: np.random.Generator) -> Array:
    """Return shuffled weights; half of the outputs of the layer depend on no input."""
    new = shuffled(weights, generator)
    if weights.shape[0] == 1 and weights.ndim == 4:
        new[..., ::2] = 0
    else:
        new[::2] = 0
    return new


def small(weights: Array, generator: np.random.Generator) -> Array:
    """Return values within four bits."""
    return generator.integers(-7, 8, weights.shape)


def large_biases(biases: Array, generator: np.random.Generator) -> Array:
    """Return biases of a quarter of the range, so that sums do not overflow."""
    if biases.dtype == np.float32:
        return generator.normal(size=biases.shape) * 1e6
    return generator.integers(-(1 << 29), 1 << 29, biases.shape)
