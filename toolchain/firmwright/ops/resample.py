"""resample: along one axis, each output is a weighted sum of a few inputs.

Inputs: x, `positions` uint16 [outputs, taps] and `weights` float32 [outputs, taps], both constant.
Attribute `axis`. Any interpolating resize is a sequence of such calls, one for each axis.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, UINT16, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import OpCall, OpDef
from firmwright.ir.tir.builder import INDEX, minimum
from firmwright.ops.kernel import Kernel


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, axis = call.input(0), call.int_attr("axis")
    positions, weights = call.constant(1), call.constant(2)
    if x.dtype != FLOAT32 or not 0 <= axis < len(x.shape):
        raise NotSupportedError(f"taps of {x.dtype.name} along axis {axis}")
    if positions is None or weights is None or positions.shape != weights.shape:
        raise NotSupportedError("taps that are not constant")
    if positions.dtype != UINT16:
        raise NotSupportedError(f"tap positions of type {positions.dtype.name}")
    if not 0 <= int(positions.array().min()) <= int(positions.array().max()) < x.shape[axis]:
        raise NotSupportedError("taps outside of the input")
    return (TensorType((*x.shape[:axis], positions.shape[0], *x.shape[axis + 1 :]), FLOAT32),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x, positions, weights = arrays
    axis = call.int_attr("axis")
    gathered = np.take(x.astype(np.float64), positions, axis=axis)
    spread = [1] * gathered.ndim
    spread[axis], spread[axis + 1] = weights.shape
    return ((gathered * weights.reshape(spread)).sum(axis=axis + 1).astype(np.float32),)


def lower(call: OpCall, b: Kernel) -> None:
    x, positions, weights = (b.input(k) for k in range(3))
    axis, (_, taps) = call.int_attr("axis"), call.input(1).shape
    with b.loops("i", b.y.shape) as index:
        acc = b.reg("acc", FLOAT32)
        b.store(acc, [0], 0.0)
        with b.for_("tap", taps) as tap:
            source = minimum(b.load(positions, [index[axis], tap]).cast(INDEX), x.shape[axis] - 1)
            position = [*index[:axis], source, *index[axis + 1 :]]
            product = b.load(x, position) * b.load(weights, [index[axis], tap])
            b.store(acc, [0], b.load(acc, [0]) + product)
        b.store(b.y, index, b.load(acc, [0]))


OPDEF = OpDef("resample", infer, reference, lower, {}, ("float32",))
