"""Fusion of QLinearConv and QLinearMatMul, as if their scalings were nodes.

These nodes are DequantizeLinear and QuantizeLinear.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from firmwright.frontends.onnx import qdq, qdq_fusion
from firmwright.frontends.onnx.fusion import Fusion
from firmwright.frontends.onnx.node_context import ConstantValue, NodeContext
from firmwright.frontends.onnx.qdq import (
    DequantizedValue,
    QdqOperands,
    QdqValue,
    QuantizedValue,
)

QLINEAR_OPERATORS = {"QLinearConv": 0, "QLinearMatMul": 1}
"""The axis of the weights that holds the output channels."""

ImportDequantize: TypeAlias = Callable[
    [NodeContext, QdqOperands], Sequence[QdqValue] | None
]


def fuse_qlinear(
    c: NodeContext, inputs: QdqOperands, dequantize: ImportDequantize
) -> list[QuantizedValue] | None:
    """Return the node's result by an integer operator, or None if there is none."""
    bias = inputs[8] if len(inputs) > 8 else None
    target = qdq.qdq_parameters(inputs[6], inputs[7])
    x = dequantize(replace(c, attrs={}), inputs[:3])
    axis = QLINEAR_OPERATORS[c.node.op_type]
    w = dequantize(replace(c, attrs={"axis": axis}), inputs[3:6])
    if target is None or x is None or w is None:
        return None
    if not isinstance(bias, ConstantValue | None):
        return None
    operands = [x[0], w[0]]
    if bias is not None:
        scales = []
        for item in (inputs[1], inputs[4]):
            if isinstance(item, ConstantValue):
                scales.append(item.array)
        products = np.prod(np.broadcast_arrays(*scales), axis=0)
        steps = ConstantValue(np.asarray(products), "scales")
        constant = qdq.attach_quantization(bias, steps, None, 0)
        if constant is None:
            return None
        operands.append(DequantizedValue(constant, "int32", is_scalar=False))
    fused = qdq_fusion.try_fuse(Fusion(c, operands, target, (-np.inf, np.inf)))
    if fused is None:
        return None
    return [QuantizedValue(c.emit.value(fused), target.is_unsigned)]
