"""Fusion of DequantizeLinear, an operator and QuantizeLinear into an integer operator.

Data movement keeps the quantization. Elementwise functions become lookup tables. Convolutions,
matrix products, sums and means use a fixed-point factor where ONNX Runtime uses a float factor, so
results may differ by 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import INT8, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Quantization
from firmwright.frontends.onnx.call_emitter import ConstantValue, OnnxValue
from firmwright.frontends.onnx.node_context import Importer, NodeContext
from firmwright.frontends.onnx.operators.convolutions import emit_conv2d, window_geometry
from firmwright.frontends.onnx.operators.pooling import emit_int8_average_pool
from firmwright.frontends.onnx.operators.reductions import reduction_axes
from firmwright.frontends.onnx.qdq import DequantizedValue, QdqParameters, QdqValue, QuantizedValue
from firmwright.ir.core import Attr
from firmwright.ir.graph.nodes import Value

DATA_MOVEMENT_OPERATORS = frozenset({
    "Concat", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "Identity", "MaxPool",
    "Pad", "Reshape", "Resize", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose",
    "Unsqueeze",
})  # fmt: skip
ELEMENTWISE_OPERATORS = frozenset({
    "Abs", "Celu", "Ceil", "Clip", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid",
    "HardSwish", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu",
    "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Swish", "Tanh", "ThresholdedRelu",
})  # fmt: skip

FusionRule = Callable[
    [NodeContext, Sequence[QdqValue | None], QdqParameters, str], OnnxValue | None
]


def _quantized_input(operand: QdqValue | None) -> Value | None:
    if isinstance(operand, DequantizedValue) and isinstance(operand.source, QuantizedValue):
        return operand.source.value
    return None


def _int8_weights(operand: QdqValue | None, axis: int) -> ConstantValue | None:
    """Return int8 weights with zero point 0 and one scale, or one per index of `axis`."""
    if not isinstance(operand, DequantizedValue) or not isinstance(operand.source, ConstantValue):
        return None
    quant = operand.source.quantization
    assert quant is not None  # by construction
    good = operand.source.array.dtype == np.int8 and not any(quant.zero_points)
    return operand.source if good and quant.axis in (None, axis) else None


def fuse_data_movement(
    importer: Importer, c: NodeContext, operands: Sequence[QdqValue | None]
) -> list[DequantizedValue] | None:
    """Return the node's results as moved integers, or None if that is not exact."""
    reals = [item for item in operands if isinstance(item, DequantizedValue)]
    sources = [item.source for item in reals if isinstance(item.source, QuantizedValue)]
    if not sources or len(sources) != len(reals):
        return None
    quants = {source.quantization for source in sources}
    if len(quants) != 1 or not _only_copies_elements(c, operands):
        return None
    inputs = tuple(
        value if (value := _quantized_input(item)) is not None else item for item in operands
    )
    if any(isinstance(item, QuantizedValue | DequantizedValue) for item in inputs):
        return None
    tensors = tuple(
        item for item in inputs if not isinstance(item, QuantizedValue | DequantizedValue)
    )
    if c.node.op_type == "Pad":
        tensors = tensors[:2] if len(tensors) < 4 else (*tensors[:2], None, tensors[3])
    moved = importer(replace(c, inputs=tensors))
    results: list[OnnxValue] = [moved] if isinstance(moved, Value | ConstantValue) else list(moved)
    return [
        DequantizedValue(QuantizedValue(c.emit.value(item), sources[0].is_unsigned))
        for item in results
    ]


def _only_copies_elements(c: NodeContext, operands: Sequence[QdqValue | None]) -> bool:
    match c.node.op_type:
        case "Resize":
            return bool(c.attr("mode", "nearest") == "nearest")
        case "Pad":
            value = operands[2] if len(operands) > 2 else None
            zero = value is None or (isinstance(value, ConstantValue) and not value.array.any())
            return zero and c.attr("mode", "constant") == "constant"
        case "MaxPool" | "Dropout" | "Split":
            return c.node.op_type == "Split" or len([n for n in c.outputs if n]) == 1
    return True


def lower_to_lut(
    importer: Importer, c: NodeContext, operands: Sequence[QdqValue | None], target: QdqParameters
) -> OnnxValue | None:
    """Tabulate the function for all 256 input values."""
    x = _quantized_input(operands[0])
    if x is None or any(
        item is not None and not isinstance(item, ConstantValue) for item in operands[1:]
    ):
        return None
    quant = x.type.quantization
    assert quant is not None  # by construction
    reals = QdqParameters(quant.scales[0], quant.zero_points[0], False).dequantized_range()
    constants = tuple(
        item for item in operands[1:] if item is None or isinstance(item, ConstantValue)
    )
    table = importer(replace(c, inputs=(ConstantValue(reals, "every value"), *constants)))
    return _emit_lut(c, x, table.array, target) if isinstance(table, ConstantValue) else None


def _emit_lut(
    c: NodeContext, x: Value, dequantized_range: Array, target: QdqParameters
) -> OnnxValue:
    table = c.emit.const(target.quantize(dequantized_range), "table")
    return c.emit.call("byte_table", [x, table], {}, like=target.type)


def requantize_by_lut(c: NodeContext, x: Value, target: QdqParameters) -> Value:
    quant = x.type.quantization
    assert quant is not None  # by construction
    if quant == target.quantization:
        return x
    reals = QdqParameters(quant.scales[0], quant.zero_points[0], False).dequantized_range()
    return c.emit.value(_emit_lut(c, x, reals, target))


def _fuse_conv(
    c: NodeContext, operands: Sequence[QdqValue | None], target: QdqParameters, activation: str
) -> OnnxValue | None:
    x, w = _quantized_input(operands[0]), _int8_weights(operands[1], 0)
    if x is None or w is None or len(x.type.shape) > 4 or len(x.type.shape) != w.array.ndim:
        return None
    bias = _int32_bias(operands[2] if len(operands) > 2 else None, x, w)
    if bias is None:
        return None
    window = window_geometry(c, w.shape[2:], x.type.shape[2:])
    groups = int(c.attr("group", 1))
    return emit_conv2d(c, x, w, bias, window, groups, target.type, activation)


def _int32_bias(operand: QdqValue | None, x: Value, w: ConstantValue) -> ConstantValue | None:
    """Return the bias as int32 in units of input scale times weight scale."""
    x_quant, quant = x.type.quantization, w.quantization
    assert x_quant is not None
    assert quant is not None
    channels = w.shape[0]
    steps = np.array(quant.scales, np.float64) * x_quant.scales[0]
    scales = tuple(float(np.float32(step)) for step in steps)
    bias_quantization = Quantization(scales, (0,) * len(scales), None if len(scales) == 1 else 0)
    if operand is None:
        return ConstantValue(np.zeros(channels, np.int32), f"{w.name}/bias", bias_quantization)
    if isinstance(operand, DequantizedValue) and isinstance(operand.source, ConstantValue):
        constant = operand.source
        scale = () if constant.quantization is None else constant.quantization.scales
        is_same = bool(scale) and constant.array.dtype == np.int32 and np.allclose(
            np.broadcast_to(scale, (channels,)), np.broadcast_to(steps, (channels,)), rtol=1e-5
        )  # fmt: skip
        if is_same and not any(constant.quantization.zero_points if constant.quantization else ()):
            return ConstantValue(constant.array.reshape(-1), constant.name, bias_quantization)
    if isinstance(operand, ConstantValue) and operand.array.size == channels:
        whole = np.rint(operand.array.reshape(-1).astype(np.float64) / steps)
        if np.abs(whole).max(initial=0) < 1 << 30:
            return ConstantValue(whole.astype(np.int32), operand.name, bias_quantization)
    return None


def _fuse_fully_connected(
    c: NodeContext, operands: Sequence[QdqValue | None], target: QdqParameters, activation: str
) -> OnnxValue | None:
    is_gemm = c.node.op_type == "Gemm"
    transposed = is_gemm and bool(c.attr("transB", 0))
    x, w = _quantized_input(operands[0]), _int8_weights(operands[1], 0 if transposed else 1)
    scaled = c.attr("alpha", 1.0) != 1 or c.attr("beta", 1.0) != 1 or c.attr("transA", 0)
    if x is None or w is None or w.array.ndim != 2 or len(x.type.shape) < 2 or scaled:
        return None
    quant = w.quantization
    assert quant is not None  # by construction
    rows = w.array if transposed else w.array.T
    axis = None if quant.axis is None else 0
    weights = ConstantValue(np.ascontiguousarray(rows), w.name, replace(quant, axis=axis))
    bias = _int32_bias(operands[2] if len(operands) > 2 else None, x, weights)
    if bias is None:
        return None
    attrs: dict[str, Attr] = {"activation": activation, "keep_dims": True}
    return c.emit.call("fully_connected", [x, weights, bias], attrs, like=target.type)


def _fuse_binary(
    c: NodeContext, inputs: Sequence[QdqValue | None], target: QdqParameters, activation: str
) -> OnnxValue | None:
    operands: list[OnnxValue] = []
    for item in inputs:
        value = _quantized_input(item)
        if value is not None:
            operands.append(value)
        elif isinstance(item, DequantizedValue) and isinstance(item.source, ConstantValue):
            quant = item.source.quantization
            if item.source.array.dtype != np.int8 or quant is None or quant.axis is not None:
                return None
            operands.append(item.source)
    if len(operands) != 2:
        return None
    op = {"Add": "add", "Sub": "sub", "Mul": "mul"}[c.node.op_type]
    return c.emit.call(op, operands, {"activation": activation}, like=target.type)


def _fuse_mean(
    c: NodeContext, operands: Sequence[QdqValue | None], target: QdqParameters, activation: str
) -> OnnxValue | None:
    x = _quantized_input(operands[0])
    if (
        x is None
        or activation != "none"
        or any(isinstance(k, DequantizedValue) for k in operands[1:])
    ):
        return None
    axes: tuple[int, ...] | None = tuple(range(2, len(x.type.shape)))
    keep = True
    if c.node.op_type == "ReduceMean":
        constants = tuple(
            item for item in operands[1:] if item is None or isinstance(item, ConstantValue)
        )
        axes, keep = reduction_axes(replace(c, inputs=(x, *constants))), bool(c.attr("keepdims", 1))
    if not axes:
        return None
    return c.emit.call("mean", [x], {"axes": axes, "keep_dims": keep}, like=target.type)


def _fuse_average_pool(
    c: NodeContext, operands: Sequence[QdqValue | None], target: QdqParameters, activation: str
) -> OnnxValue | None:
    x = _quantized_input(operands[0])
    if x is None or activation != "none" or x.type.quantization != target.quantization:
        return None
    return emit_int8_average_pool(replace(c, inputs=(x,)))


def _fuse_concat(
    c: NodeContext, operands: Sequence[QdqValue | None], target: QdqParameters, activation: str
) -> OnnxValue | None:
    values = [value for item in operands if (value := _quantized_input(item)) is not None]
    if len(values) != len(operands) or activation != "none":
        return None
    axis = int(c.attr("axis")) % len(values[0].type.shape)
    same = [requantize_by_lut(c, value, target) for value in values]
    return c.emit.call("concatenation", same, {"axis": axis}, like=target.type)


def _fuse_softmax(
    c: NodeContext, operands: Sequence[QdqValue | None], target: QdqParameters, activation: str
) -> OnnxValue | None:
    x = _quantized_input(operands[0])
    fits = (target.scale, target.zero_point, activation) == (1 / 256, INT8.min, "none")
    if x is None or not fits:
        return None
    rank = len(x.type.shape)
    axis = int(c.attr("axis", -1)) % rank
    if axis == rank - 1:
        return c.emit.call("softmax", [x], {"beta": 1.0}, like=target.type)
    order = [*(k for k in range(rank) if k != axis), axis]
    last = c.emit.transpose(x, order)
    result = c.emit.call("softmax", [last], {"beta": 1.0}, like=target.type)
    return c.emit.transpose(result, [order.index(k) for k in range(rank)])


FUSION_RULES: Mapping[str, FusionRule] = {
    "Add": _fuse_binary,
    "AveragePool": _fuse_average_pool,
    "Concat": _fuse_concat,
    "Conv": _fuse_conv,
    "Gemm": _fuse_fully_connected,
    "GlobalAveragePool": _fuse_mean,
    "MatMul": _fuse_fully_connected,
    "Mul": _fuse_binary,
    "ReduceMean": _fuse_mean,
    "Softmax": _fuse_softmax,
    "Sub": _fuse_binary,
}


def try_fuse(
    take: FusionRule,
    c: NodeContext,
    operands: Sequence[QdqValue | None],
    target: QdqParameters,
    activation: str,
) -> OnnxValue | None:
    """Apply a fusion function; return None if the integer operator does not support the call."""
    before = len(c.emit.calls)
    try:
        return take(c, operands, target, activation)
    except NotSupportedError:
        del c.emit.calls[before:]
        return None
