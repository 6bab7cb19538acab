"""Elementwise operators between DequantizeLinear and QuantizeLinear as tables.

A table has the results of all 256 inputs.
"""

from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.frontends.onnx.fusion import Fusion, quantization_of, quantized_input
from firmwright.frontends.onnx.mlas_functions import MLAS_FUNCTIONS
from firmwright.frontends.onnx.node_context import (
    ConstantValue,
    Importer,
    NodeContext,
    OnnxValue,
)
from firmwright.frontends.onnx.qdq import QdqParameters
from firmwright.ir.graph.nodes import Value

ELEMENTWISE_OPERATORS = frozenset(
    {
        "Abs",
        "Add",
        "Celu",
        "Ceil",
        "Clip",
        "Cos",
        "Div",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Log",
        "Max",
        "Min",
        "Mish",
        "Mul",
        "Neg",
        "PRelu",
        "Pow",
        "Reciprocal",
        "Relu",
        "Round",
        "Selu",
        "Sigmoid",
        "Sign",
        "Sin",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Sub",
        "Swish",
        "Tanh",
        "ThresholdedRelu",
    }
)
"""Operators that become tables if all inputs but one are constants of one element."""


def lower_to_lut(importer: Importer, f: Fusion) -> OnnxValue | None:
    """Emit a table lookup of all 256 results; return None if that is impossible."""
    sources = [x for x in map(quantized_input, f.operands) if x is not None]
    if len(sources) != 1:
        return None
    (x,) = sources
    function = MLAS_FUNCTIONS.get(f.c.node.op_type)
    if function is not None:
        results = function(every_value(x).astype(np.float32))
        return _emit_lut(f.c, x, np.clip(results, *f.bounds), f.target)
    inputs: list[OnnxValue | None] = []
    for item in f.operands:
        if quantized_input(item) is not None:
            item = ConstantValue(every_value(x), "every value")
        elif isinstance(item, ConstantValue):
            has_more_axes = len(item.shape) > len(x.type.shape)
            if item.array.size > 1 or has_more_axes:
                return None
        if not isinstance(item, ConstantValue | None):
            return None
        inputs.append(item)
    table = importer(replace(f.c, inputs=tuple(inputs)))
    if not isinstance(table, ConstantValue) or table.array.dtype != np.float32:
        return None
    return _emit_lut(f.c, x, np.clip(table.array.reshape(-1), *f.bounds), f.target)


def every_value(x: Value) -> Array:
    """Return the real values of all 256 integers of an 8-bit tensor."""
    quant = quantization_of(x)
    parameters = QdqParameters(quant.scales[0], quant.zero_points[0], False)
    return parameters.dequantized_range()


def _emit_lut(
    c: NodeContext, x: Value, results: Array, target: QdqParameters
) -> OnnxValue:
    table = c.emit.const(target.quantize(results), "table")
    return c.emit.call("byte_table", x, table, result=target.type)


def requantize_by_lut(c: NodeContext, x: Value, target: QdqParameters) -> Value:
    """Return `x` in the target's quantization: itself, or by a table of 256 results."""
    if x.type.quantization == target.quantization:
        return x
    return c.emit.value(_emit_lut(c, x, every_value(x), target))
