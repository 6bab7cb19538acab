"""int8 convolutions whose ReLU ends at the zero point of the output, -128."""

from __future__ import annotations

from typing import Any

import numpy as np

from firmwright.base.dtypes import INT8, INT32
from firmwright.base.quant import Quantization
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall


def relu_layer(
    op: str,
    zero_point: int,
    shape: tuple[int, int, int],
    weights: np.ndarray,
    scales: tuple[float, ...],
    bias: np.ndarray,
    stride: tuple[int, int],
    padding: tuple[int, int, int, int],
    **attrs: Any,
) -> OpCall:
    """Return a layer on `shape` with scale 0.02 and one output for each of `scales`."""
    outputs, window = len(scales), weights.shape[1:3]
    sides = (
        (shape[k] + padding[2 * k] + padding[2 * k + 1] - window[k]) // stride[k] + 1
        for k in range(2)
    )
    x = TensorType((1, *shape), INT8, Quantization((0.02,), (zero_point,)))
    y = TensorType((1, *sides, outputs), INT8, Quantization((6 / 255,), (-128,)))
    axis = 0 if op == "conv2d" else 3
    w = TensorType(weights.shape, INT8, Quantization(scales, (0,) * outputs, axis))
    attrs |= {
        "stride": stride,
        "dilation": (1, 1),
        "padding": padding,
        "activation": "relu6",
    }
    constants = (
        Constant.from_array("w", weights, INT8),
        Constant.from_array("b", bias, INT32),
    )
    return OpCall(
        op,
        (x, w, TensorType((outputs,), INT32)),
        (y,),
        attrs_from_mapping(op, attrs),
        (None, *constants),
    )
