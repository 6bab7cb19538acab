"""Weights that stand in for a model's, for choices that suit every weight set.

A stand-in depends only on the call: operator, types and shapes. The values satisfy the
conditions that importers check, such as sums that fit 32 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, Array
from firmwright.base.rounding import divide_up
from firmwright.ir.core import Constant
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.module import IRModule

_SUMMING_OPS = frozenset(
    {
        "conv2d",
        "depthwise_conv2d",
        "fully_connected",
        "transpose_conv",
        "variable_fully_connected",
    }
)
_WEIGHTED_OPS = _SUMMING_OPS | {
    "hybrid_conv2d",
    "hybrid_depthwise_conv2d",
    "hybrid_fully_connected",
    "batch_matmul",
    "hybrid_batch_matmul",
    "conv_nd",
    "conv_transpose_nd",
    "add",
    "sub",
    "mul",
    "prelu",
    "expression",
}
_BIAS = 2
_SEED = 20
_FLOAT_REACH = 100.0
_STEPS = {INT8: 256, INT16: 1 << 15}
"""Bounds of |x - zero point| by the type of x, as in ops/requantize.py."""


class StandIn(Enum):
    """Values of the whole range with its extremes, all zeros, or small ones."""

    FULL_RANGE = "full range"
    ZEROS = "zeros"
    SMALL = "small"


def with_stand_ins(module: IRModule, kind: StandIn) -> IRModule:
    """Return the module with stand-ins for all weights of its graphs."""
    constants = dict(module.constants)
    replaced: set[str] = set()
    for function in module.functions.values():
        if not isinstance(function, Function):
            continue
        for call, index, value in _weights(function):
            name = str(value.constant)
            if name not in replaced:
                replaced.add(name)
                constants[name] = _stand_in(call, index, constants[name], kind)
    return replace(module, constants=constants)


def _weights(function: Function) -> Iterator[tuple[Call, int, Value]]:
    for call in function.body:
        for index, value in enumerate(call.inputs):
            if value is None or value.constant is None:
                continue
            if _is_weight(call, index, value):
                yield call, index, value


def _is_weight(call: Call, index: int, value: Value) -> bool:
    if call.op not in _WEIGHTED_OPS:
        return False
    is_bias = index == _BIAS and call.op in _SUMMING_OPS
    return is_bias or value.type.dtype.is_float or value.type.quantization is not None


def _stand_in(call: Call, index: int, constant: Constant, kind: StandIn) -> Constant:
    if constant.dtype.is_float:
        values = _floats(constant.shape, kind)
    elif index == _BIAS and call.op in _SUMMING_OPS:
        values = _biases(call, constant, kind)
    else:
        values = _integers(call, constant, kind)
    made = Constant.from_array(constant.name, values, constant.dtype)
    return replace(made, pool=constant.pool)


def _floats(shape: tuple[int, ...], kind: StandIn) -> Array:
    match kind:
        case StandIn.ZEROS:
            return np.zeros(shape)
        case StandIn.SMALL:
            return np.ones(shape)
        case StandIn.FULL_RANGE:
            generator = np.random.default_rng(_SEED)
            return generator.uniform(-_FLOAT_REACH, _FLOAT_REACH, shape)


def _integers(call: Call, constant: Constant, kind: StandIn) -> Array:
    """Return integers of the whole range, or of the part with sums that fit 32 bits."""
    least, most = constant.dtype.min, constant.dtype.max
    if call.op in _SUMMING_OPS:
        reach = INT32.max // (2 * _products(call, constant))
        least, most = max(least, -reach), min(most, reach)
    generator = np.random.default_rng(_SEED)
    match kind:
        case StandIn.ZEROS:
            return np.zeros(constant.shape, np.int64)
        case StandIn.SMALL:
            return generator.integers(max(least, -3), min(most, 3) + 1, constant.shape)
        case StandIn.FULL_RANGE:
            values = generator.integers(least, most + 1, constant.shape)
            values.reshape(-1)[: constant.shape[0] or 1] = least
            return values


def _products(call: Call, weights: Constant) -> int:
    """Return the greatest sum of inputs of one output channel with weights of 1."""
    x, y = call.inputs[0], call.outputs[0]
    assert x is not None
    channels = max(1, y.type.shape[-1])
    size = int(np.prod(weights.shape))
    return _STEPS.get(x.type.dtype, 1) * divide_up(size, channels)


def _biases(call: Call, constant: Constant, kind: StandIn) -> Array:
    """Return biases of the whole range that leaves room for the products."""
    if kind is not StandIn.FULL_RANGE:
        return np.zeros(constant.shape, np.int64)
    values = np.full(constant.shape, INT32.max // 4, np.int64)
    values.reshape(-1)[::2] *= -1
    return values
