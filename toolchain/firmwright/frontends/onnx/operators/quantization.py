"""QuantizeLinear, DequantizeLinear and QLinear operators in floats, if not fused."""

import math
from collections.abc import Mapping

import numpy as np

from firmwright.base.dtypes import FLOAT32, DType
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.axes import normalize_axis
from firmwright.frontends.onnx import node_context
from firmwright.frontends.onnx.float8_saturation import FLOAT8_ENDS, saturated_float8
from firmwright.frontends.onnx.node_context import (
    Importer,
    NodeContext,
    OnnxValue,
)
from firmwright.frontends.onnx.operators import conv
from firmwright.frontends.onnx.operators.matmul import emit_matmul
from firmwright.frontends.onnx.protobuf import dtype_name
from firmwright.frontends.onnx.qdq import BY_RECIPROCAL
from firmwright.ir.graph.attributes.values import AxesAttrs


def _broadcast_operand(
    c: NodeContext, operand: OnnxValue, shape: tuple[int, ...]
) -> OnnxValue:
    """Return a scale or zero point that broadcasts to `shape`.

    It is one of the tensor, of each index of an axis, or of each block along it.
    """
    own = operand.shape
    if math.prod(own) == 1:
        return c.emit.reshape(operand, ())
    axis = normalize_axis(c.attr("axis", 1), len(shape))
    block = int(c.attr("block_size", 0))
    if block:
        return c.emit.gather(operand, axis, np.arange(shape[axis]) // block)
    if own != (shape[axis],):
        raise NotSupportedError(f"scales {list(own)} for axis {axis} of {list(shape)}")
    spread = node_context.vector_shape(shape[axis], axis, len(shape))
    return c.emit.reshape(operand, spread)


def _target(c: NodeContext) -> DType:
    if c.has(2):
        return c.dtype(2)
    code = c.attr("output_dtype", 0)
    return node_context.supported_dtype(dtype_name(code) if code else "uint8")


def _saturate(
    c: NodeContext, x: OnnxValue, zero_point: OnnxValue | None, kind: DType
) -> OnnxValue:
    """Return rint(x) + zero point, saturated to the range of `kind`."""
    low, high = float(kind.min), float(kind.max)
    if zero_point is None:
        return c.emit.expression(f"{kind.name}(min(max(rint(a), {low}), {high}))", x)
    formula = f"{kind.name}(min(max(rint(a) + float32(b), {low}), {high}))"
    return c.emit.expression(formula, x, zero_point)


def import_quantize(c: NodeContext) -> OnnxValue:
    x, kind = c.input(0), _target(c)
    if x.type.dtype != FLOAT32 or not _is_quantized_type(kind):
        raise NotSupportedError(f"{x.type.dtype.name} as {kind.name}")
    formula = "a * (1.0 / b)" if c.attr(BY_RECIPROCAL, 0) else "a / b"
    steps = c.emit.expression(formula, x, _broadcast_operand(c, c.input(1), x.shape))
    if kind.has_fractions:
        if kind in FLOAT8_ENDS and c.attr("saturate", 1):
            return saturated_float8(c.emit, steps, kind)
        return c.emit.cast(steps, kind)
    point = _broadcast_operand(c, c.input(2), x.shape) if c.has(2) else None
    return _saturate(c, steps, point, kind)


def _is_quantized_type(kind: DType) -> bool:
    """Return whether numbers are quantized as `kind`: an integer or a tiny float."""
    return kind.bits <= (8 if kind.has_fractions else 16)


def import_dequantize(c: NodeContext) -> OnnxValue:
    x, scale = c.input(0), c.input(1)
    kind = x.type.dtype
    is_float = kind.has_fractions and _is_quantized_type(kind)
    if not (kind.computed.is_int or is_float) or scale.type.dtype != FLOAT32:
        raise NotSupportedError(f"{kind.name} in steps of {scale.type.dtype.name}")
    steps = _broadcast_operand(c, scale, x.shape)
    # The zero point of floats is 0; it only states their type.
    if is_float or not c.has(2):
        return c.emit.expression("float32(a) * b", x, steps)
    point = _broadcast_operand(c, c.input(2), x.shape)
    return c.emit.expression("float32(int32(a) - int32(b)) * c", x, point, steps)


def _channels(c: NodeContext, operand: OnnxValue, rank: int) -> OnnxValue:
    """Reshape to a scalar, or to a vector along axis 1 of `rank` axes."""
    count = math.prod(operand.shape)
    shape = () if count == 1 else (count, *(1,) * (rank - 2))
    return c.emit.reshape(operand, shape)


def _qlinear_conv(c: NodeContext) -> OnnxValue:
    window = conv.window_geometry(c, c.shape(3)[2:], c.shape(0)[2:])
    x = conv.subtract_zero_point(c, c.input(0), c.input(2), c.rank)
    w = conv.subtract_zero_point(c, c.input(3), c.input(5), c.rank)
    bias = [c.input(8)] if c.has(8) else []
    total = conv.emit_conv_nd(c, window, x, w, *bias)
    scales = (_channels(c, c.input(k), c.rank) for k in (1, 4, 6))
    factor = c.emit.expression("a * b / c", *scales)
    steps = c.emit.expression("float32(a) * b", total, factor)
    return _saturate(c, steps, c.emit.reshape(c.input(7), ()), c.dtype(7))


def _qlinear_matmul(c: NodeContext) -> OnnxValue:
    if c.dtype(1) != FLOAT32:
        raise NotSupportedError(f"steps of {c.dtype(1).name}")
    rows = 2 if math.prod(c.shape(2)) > 1 else 1
    a = conv.subtract_zero_point(c, c.input(0), c.input(2), rows)
    b = conv.subtract_zero_point(c, c.input(3), c.input(5), 1)
    total = emit_matmul(c.emit, a, b)
    scale, count = c.input(1), math.prod(c.shape(1))
    if count > 1:
        scale = c.emit.reshape(scale, (count, 1))
    factor = c.emit.expression("a * b / c", scale, c.input(4), c.input(6))
    steps = c.emit.expression("float32(a) * b", total, factor)
    return _saturate(c, steps, c.input(7), c.dtype(7))


def _dynamic_quantize(c: NodeContext) -> list[OnnxValue]:
    """Return uint8 values, scale and zero point; the represented range includes 0."""
    x = c.input(0)
    attrs = AxesAttrs(axes=tuple(range(c.rank)), keep_dims=False)
    low = c.emit.call("reduce_min", x, attrs=attrs)
    high = c.emit.call("reduce_max", x, attrs=attrs)
    extent = "extent = max(b, 0.0) - min(a, 0.0)"
    # ONNX Runtime's scale of a tensor of zeros is 1.
    step = "where(extent == 0.0, 1.0, extent / 255.0)"
    scale = c.emit.expression(f"{extent}; {step}", low, high)
    zero = "uint8(min(max(rint(-min(a, 0.0) / b), 0.0), 255.0))"
    point = c.emit.expression(zero, low, scale)
    steps = c.emit.expression("a / b", x, scale)
    return [_saturate(c, steps, point, point.type.dtype), scale, point]


IMPORTERS: Mapping[str, Importer] = {
    "DequantizeLinear": import_dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": import_quantize,
}
