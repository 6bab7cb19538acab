"""QuantizeLinear and DequantizeLinear as boundaries between integers and floats."""

from collections.abc import Callable, Sequence

from firmwright.base.dtypes import FLOAT32, INT8, UINT8
from firmwright.frontends.onnx import qdq
from firmwright.frontends.onnx.node_context import ConstantValue, NodeContext, OnnxValue
from firmwright.frontends.onnx.qdq import (
    DequantizedValue,
    QdqOperands,
    QdqValue,
    QuantizedValue,
)
from firmwright.frontends.onnx.qdq_lookup_tables import requantize_by_lut
from firmwright.ir.graph.nodes import Value


def keep_integers(c: NodeContext, inputs: QdqOperands) -> Sequence[QdqValue] | None:
    """Return a DequantizeLinear's result as its integers, or None to compute floats."""
    x, scale, point, *_ = (*inputs, None)
    if isinstance(x, ConstantValue):
        weights = qdq.attach_quantization(x, scale, point, int(c.attr("axis", 1)))
        if weights is None or c.attr("block_size", 0):
            return None
        is_scalar = qdq.are_scalars(scale, point)
        return [DequantizedValue(weights, x.array.dtype.name, is_scalar)]
    scaling = qdq.qdq_parameters(scale, point)
    if scaling is None or c.attr("output_dtype", 0) not in (0, 1):
        return None
    if isinstance(x, Value) and x.type.dtype in (INT8, UINT8):
        if scaling.is_unsigned != (x.type.dtype == UINT8):
            return None
        stored = qdq.as_quantized(c.emit, x, scaling)
        return [DequantizedValue(stored, scaling.integer_type, scaling.is_scalar)]
    if isinstance(x, QuantizedValue) and x.quantization == scaling.quantization:
        return [DequantizedValue(x, scaling.integer_type, scaling.is_scalar)]
    return None


def quantize_once(
    c: NodeContext,
    inputs: QdqOperands,
    materialize: Callable[[QdqValue], OnnxValue],
) -> Sequence[QdqValue] | None:
    """Return a QuantizeLinear's result as int8; None if the importer computes it.

    Integers that are quantized again are converted by a table, without floats.
    """
    x, scale, point, *_ = (*inputs, None)
    scaling = qdq.qdq_parameters(scale, point, qdq.BY_RECIPROCAL in c.attrs)
    if scaling is None or set(c.attrs) - qdq.QUANTIZE_ATTRIBUTES:
        return None
    if isinstance(x, DequantizedValue) and isinstance(x.source, QuantizedValue):
        same = x.source.quantization == scaling.quantization
        if same and x.source.is_unsigned == scaling.is_unsigned:
            return [x.source]
        other = requantize_by_lut(c, x.source.value, scaling)
        return [QuantizedValue(other, scaling.is_unsigned)]
    reals = None if x is None else materialize(x)
    if not isinstance(reals, Value) or reals.type.dtype != FLOAT32:
        return None
    return [qdq.emit_quantize(c.emit, reals, scaling)]
