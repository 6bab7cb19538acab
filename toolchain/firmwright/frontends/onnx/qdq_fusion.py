"""Fusion of operators between DequantizeLinear and QuantizeLinear to integer ones."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Quantization
from firmwright.frontends.onnx.fusion import (
    Fusion,
    FusionRule,
    dequantized_constant,
    quantization_of,
    quantized_input,
)
from firmwright.frontends.onnx.node_context import ConstantValue, OnnxValue
from firmwright.frontends.onnx.operators import conv, pooling
from firmwright.frontends.onnx.operators.conv import ConstantFilters
from firmwright.frontends.onnx.operators.reductions import axis_last, reduction_axes
from firmwright.frontends.onnx.operators.resize import emit_linear_sum
from firmwright.frontends.onnx.qdq import (
    UNSIGNED_OFFSET,
    DequantizedValue,
    QdqValue,
    emit_quantize,
)
from firmwright.frontends.onnx.qdq_arithmetic import (
    BinaryOperands,
    IntegerKernelError,
    check_range,
    exponentials,
    fit_product,
    fit_table_sum,
    in_floats,
    is_repeated,
    product_formula,
    products,
    softmax_steps,
    sum_formula,
    sums,
)
from firmwright.frontends.onnx.qdq_lookup_tables import every_value, requantize_by_lut
from firmwright.ir.graph.attributes.layers import BatchMatmulAttrs, FullyConnectedAttrs
from firmwright.ir.graph.attributes.movement import AxisAttrs
from firmwright.ir.graph.attributes.values import AxesAttrs, ExpressionAttrs
from firmwright.ir.graph.nodes import Value

_BIAS_ERROR_MAX = 1 / 128
"""The largest error of a rounded bias, in steps of the result."""


def _int8_weights(operand: QdqValue | None, axis: int) -> ConstantValue | None:
    """Return weights with one zero point and scales per tensor or `axis`, else None."""
    weights = dequantized_constant(operand)
    if weights is None or weights.array.dtype != np.int8:
        return None
    quant = quantization_of(weights)
    is_supported = len({*quant.zero_points}) == 1 and quant.axis in (None, axis)
    return weights if is_supported else None


def _fuse_conv(axis: int, f: Fusion) -> OnnxValue | None:
    """Emit a convolution; output channels are on `axis` of w, 1 if transposed."""
    x, w = f.x, _int8_weights(f.operands[1], axis)
    if x is None or w is None or len(x.type.shape) != w.array.ndim:
        return None
    bias = _int32_bias(f, x, w, axis)
    if bias is None:
        return None
    constants = ConstantFilters(w, bias)
    activation = f.activation or "none"
    if axis == 1:
        return conv.emit_transpose_conv2d(f.c, x, constants, f.target.type, activation)
    window = conv.window_geometry(f.c, w.shape[2:], x.type.shape[2:])
    if w.array.ndim > 4:
        return _fuse_conv_nd(f, window, x, w, bias)
    return conv.emit_conv2d(f.c, x, constants, window, f.target.type, activation)


def _fuse_conv_nd(
    f: Fusion, window: conv.Window, x: Value, w: ConstantValue, bias: ConstantValue
) -> OnnxValue:
    """Sum integers over three or more axes, and scale the sums in float32."""
    emit = f.c.emit
    quant = quantization_of(w)
    target = f.target
    centered = emit.expression(f"int32(a) - {quantization_of(x).zero_point}", x)
    weights = w.array.astype(np.int32) - quant.zero_points[0]
    filters = replace(w, array=weights, quantization=None)
    addend = replace(bias, quantization=None)
    total = conv.emit_conv_nd(f.c, window, centered, filters, addend)
    steps = np.array(quant.scales, np.float32) * np.float32(quantization_of(x).scale)
    per_channel = (-1, *(1,) * len(window.size))
    factors = emit.const((steps / np.float32(target.scale)).reshape(per_channel))
    low, high = f.limits
    rounded = f"rint(float32(a) * b) + {float(target.zero_point)!r}"
    formula = f"int8(min(max({rounded}, {float(low)!r}), {float(high)!r}))"
    attrs = ExpressionAttrs(formula=formula)
    return emit.call("expression", total, factors, attrs=attrs, result=target.type)


def _int32_bias(
    f: Fusion, x: Value, w: ConstantValue, axis: int = 0
) -> ConstantValue | None:
    """Return the bias (operand 2) as int32 in units of input scale times weight scale.

    The channels are on `axis` of the weights. Return None if rounding a PyTorch
    program's float bias changes results by more than `_BIAS_ERROR_MAX`.
    """
    operand = f.operands[2] if len(f.operands) > 2 else None
    channels = w.shape[axis]
    x_scale = np.float32(quantization_of(x).scale)
    steps = np.array(quantization_of(w).scales, np.float32) * x_scale
    scales = tuple(float(step) for step in steps)
    scale_axis = None if len(scales) == 1 else 0
    quantization = Quantization(scales, (0,) * len(scales), scale_axis)
    if operand is None:
        zeros = np.zeros(channels, np.int32)
        return ConstantValue(zeros, f"{w.name}/bias", quantization)
    constant = dequantized_constant(operand)
    if constant is not None:
        quant = quantization_of(constant)
        is_same = constant.array.dtype == np.int32 and np.allclose(
            np.broadcast_to(quant.scales, channels),
            np.broadcast_to(steps, channels),
            rtol=1e-5,
        )
        if is_same and not any(quant.zero_points):
            array = constant.array.reshape(-1)
            return ConstantValue(array, constant.name, quantization)
    first = f.operands[0]
    if isinstance(first, DequantizedValue):
        is_rounded = first.integer_type or f.target.by_reciprocal
        if not is_rounded:
            # ONNX Runtime rounds no float bias of a layer that it computes in floats.
            return None
    if isinstance(operand, ConstantValue) and operand.array.size == channels:
        exact = operand.array.reshape(-1) / steps
        whole = np.rint(exact)
        error = np.abs((whole - exact) * steps / f.target.scale).max(initial=0)
        is_near = error <= _BIAS_ERROR_MAX or not f.target.by_reciprocal
        largest = np.abs(whole).max(initial=0)
        if largest >= 1 << 31 and not f.target.by_reciprocal:
            raise IntegerKernelError(
                "a bias beyond 32 bits in steps of input scale times weight scale, "
                "which ONNX Runtime saturates; calibrate with data that give this "
                "input a larger scale, or leave the layer in floats"
            )
        if largest < 1 << 30 and is_near:
            return ConstantValue(whole.astype(np.int32), operand.name, quantization)
    return None


def _fuse_fully_connected(f: Fusion) -> OnnxValue | None:
    transposed = f.c.node.op_type == "Gemm" and bool(f.c.attr("transB", 0))
    x = f.x
    w = _int8_weights(f.operands[1], 0 if transposed else 1)
    scaled = (
        f.c.attr("alpha", 1.0) != 1
        or f.c.attr("beta", 1.0) != 1
        or f.c.attr("transA", 0)
    )
    if x is None or len(x.type.shape) < 2 or scaled:
        return None
    if w is None or w.array.ndim != 2:
        return _fuse_variable_product(f, x, transposed)
    quant = quantization_of(w)
    quant = replace(quant, axis=None if quant.axis is None else 0)
    rows = np.ascontiguousarray(w.array if transposed else w.array.T)
    weights = ConstantValue(rows, w.name, quant)
    bias = _int32_bias(f, x, weights)
    if bias is None:
        return None
    attrs = FullyConnectedAttrs(activation=f.activation or "none", keep_dims=True)
    return f.c.emit.call(
        "fully_connected", x, weights, bias, attrs=attrs, result=f.target.type
    )


def _fuse_variable_product(f: Fusion, x: Value, transposed: bool) -> OnnxValue | None:
    y: OnnxValue | None = quantized_input(f.operands[1])
    if y is None:
        y = _int8_weights(f.operands[1], -1)
    if y is None or len(y.shape) < 2 or len(f.operands) > 2:
        return None
    attrs = BatchMatmulAttrs(adj_x=False, adj_y=transposed)
    return f.c.emit.call("batch_matmul", x, y, attrs=attrs, result=f.target.type)


def _fuse_binary(f: Fusion) -> OnnxValue | None:
    operands: list[Value | ConstantValue] = []
    for item in f.operands:
        value = quantized_input(item)
        constant = dequantized_constant(item)
        if value is not None:
            operands.append(value)
        elif constant is not None:
            if constant.array.dtype != np.int8:
                return None
            if quantization_of(constant).axis is not None:
                return None
            operands.append(constant)
    if len(operands) != 2:
        return None
    a, b = operands
    repeated = is_repeated(a.shape, b.shape)
    pair = BinaryOperands(
        quantization_of(a), quantization_of(b), f.target, *f.limits, repeated
    )
    fitted = _fit_binary(f, pair, a, b)
    may_use_floats = f.c.node.op_type == "Sub" or not f.uses_scalar_integer_kernel
    if fitted is not None or may_use_floats:
        return fitted
    is_product = f.c.node.op_type == "Mul"
    formula = product_formula(pair) if is_product else sum_formula(pair, sums(pair))
    if formula is None:
        raise IntegerKernelError("scales whose ratio exceeds the range of float32")
    attrs = ExpressionAttrs(formula=formula)
    return f.c.emit.call("expression", a, b, attrs=attrs, result=f.target.type)


def _fit_binary(
    f: Fusion, pair: BinaryOperands, a: Value | ConstantValue, b: Value | ConstantValue
) -> OnnxValue | None:
    """Emit integer arithmetic with ONNX Runtime's results; None if there is none."""
    op, result = f.c.node.op_type, f.target.type
    if op == "Mul":
        if f.uses_scalar_integer_kernel:
            results = products(pair)
        else:
            results = in_floats(pair, np.multiply)
        product = fit_product(pair, results)
        if product is None:
            return None
        return f.c.emit.call("fitted_product", a, b, attrs=product, result=result)
    if op == "Sub" or not f.uses_scalar_integer_kernel:
        results = in_floats(pair, np.subtract if op == "Sub" else np.add)
    else:
        results = sums(pair)
    attrs = fit_table_sum(pair, results, -1 if op == "Sub" else 1)
    if attrs is None and op == "Add":
        a, b = b, a
        attrs = fit_table_sum(replace(pair, a=pair.b, b=pair.a), results.T)
    if attrs is None:
        return None
    return f.c.emit.call("table_sum", a, b, attrs=attrs, result=result)


def _fuse_mean(f: Fusion) -> OnnxValue | None:
    if f.x is None:
        return None
    attrs = AxesAttrs(axes=tuple(range(2, len(f.x.type.shape))), keep_dims=True)
    return f.c.emit.call("mean", f.x, attrs=attrs, result=f.target.type)


def _fuse_reduction(op: str, f: Fusion) -> OnnxValue | None:
    x, constants = f.x, f.constant_operands()
    if x is None or constants is None:
        return None
    axes = reduction_axes(replace(f.c, inputs=(x, *constants)))
    if not axes:
        return None
    keep = bool(f.c.attr("keepdims", 1))
    order = () if f.target.by_reciprocal else tuple(range(len(x.type.shape)))
    attrs = AxesAttrs(axes=axes, keep_dims=keep, float_order=order)
    return f.c.emit.call(op, x, attrs=attrs, result=f.target.type)


def _fuse_average_pool(f: Fusion) -> OnnxValue | None:
    """Pool as QLinearAveragePool does: a window over the whole input adds integers.

    Others add float32, whose order decides ties, and add the zero point before
    rounding.
    """
    x, target = f.x, f.target
    if x is None or not f.uses_integer_kernel:
        return None
    c = replace(f.c, inputs=(x,))
    window = pooling.pool_window(c)
    if window.size == x.type.shape[2:] and not any((*window.before, *window.after)):
        return _fuse_mean(f)
    quant = quantization_of(x)
    offset = UNSIGNED_OFFSET * target.is_unsigned
    check_range(float(np.abs(target.steps(every_value(x))).max()))
    term = f"float32(int32(a) - {quant.zero_point}) * {quant.scale!r}"
    zero = float(target.zero_point + offset)
    rounded = f"rint(a / {target.scale!r} + {zero!r}) - {float(offset)!r}"
    low, high = float(INT8.min), float(INT8.max)
    final = f"int8(min(max({rounded}, {low!r}), {high!r}))"
    return pooling.emit_pool("average", c, window, target.type, term=term, final=final)


def _fuse_resize(f: Fusion) -> OnnxValue | None:
    """Interpolate floats in the order of ONNX Runtime, which decides many ties."""
    x, constants, emit = f.x, f.constant_operands(), f.c.emit
    if x is None or constants is None:
        return None
    reals = emit.call("dequantize", x, result=FLOAT32)
    y = emit_linear_sum(replace(f.c, inputs=(reals, *constants)), reals)
    return None if y is None else emit_quantize(emit, y, f.target).value


def _fuse_concat(f: Fusion) -> OnnxValue | None:
    values: list[Value] = []
    for item in f.operands:
        value = quantized_input(item)
        if value is None:
            return None
        values.append(value)
    axis = int(f.c.attr("axis")) % len(values[0].type.shape)
    same = [requantize_by_lut(f.c, value, f.target) for value in values]
    attrs = AxisAttrs(axis=axis)
    return f.c.emit.call("concatenation", *same, attrs=attrs, result=f.target.type)


def _fuse_softmax(f: Fusion) -> OnnxValue | None:
    """Divide table entries by their sum, as QLinearSoftmax and PyTorch do."""
    x, target, emit = f.x, f.target, f.c.emit
    if x is None or not (f.uses_integer_kernel or target.by_reciprocal):
        return None
    rank = len(x.type.shape)
    axis = int(f.c.attr("axis", -1)) % rank
    perm, inverse = axis_last(axis, rank)
    rows = emit.transpose(x, perm)
    last = AxesAttrs(axes=(rank - 1,), keep_dims=True)
    highest = emit.call("reduce_max", rows, attrs=last, result=x.type)
    place = emit.expression("int32(a) - int32(b) + 255", rows, highest)
    count = x.type.shape[axis]
    entries = exponentials(quantization_of(x).scale, count)
    table = emit.const(entries, "exponentials")
    powers = emit.gather_along(table, 0, place)
    total = emit.reduction("a", "add", (rank - 1,), powers)
    high, zero = float(INT8.max), float(target.zero_point)
    if target.by_reciprocal:
        steps = f"rint(a / b * {float(np.float32(1 / target.scale))!r})"
    else:
        steps = softmax_steps(target.scale, float(entries[-1]), count)
    *named, whole = steps.split("; ")
    formula = "; ".join([*named, f"int8(min({whole} + {zero!r}, {high!r}))"])
    attrs = ExpressionAttrs(formula=formula)
    y = emit.call("expression", powers, total, attrs=attrs, result=target.type)
    return emit.transpose(y, inverse)


FUSION_RULES: Mapping[str, FusionRule] = {
    "Add": _fuse_binary,
    "AveragePool": _fuse_average_pool,
    "Concat": _fuse_concat,
    **dict.fromkeys(("Conv", "QLinearConv"), partial(_fuse_conv, 0)),
    "ConvTranspose": partial(_fuse_conv, 1),
    **dict.fromkeys(("Gemm", "MatMul", "QLinearMatMul"), _fuse_fully_connected),
    "GlobalAveragePool": _fuse_mean,
    "Mul": _fuse_binary,
    "ReduceMean": partial(_fuse_reduction, "mean"),
    "ReduceSum": partial(_fuse_reduction, "sum"),
    "Resize": _fuse_resize,
    "Softmax": _fuse_softmax,
    "Sub": _fuse_binary,
}
_CLAMPING_OPERATORS = frozenset({"Add", "Mul", "Sub"})
_LAYERS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


def try_fuse(f: Fusion) -> OnnxValue | None:
    """Apply the node's fusion rule; return None if its integer operator cannot."""
    before, op = len(f.c.emit.calls), f.c.node.op_type
    try:
        result = FUSION_RULES[op](f)
    except IntegerKernelError:
        raise
    except NotSupportedError:
        del f.c.emit.calls[before:]
        return None
    if result is None or f.activation == "none" or op in _CLAMPING_OPERATORS:
        return result
    if op in _LAYERS and f.activation and f.c.emit.calls[-1].op != "batch_matmul":
        return result
    every = np.arange(INT8.min, INT8.max + 1)
    limited = np.clip(every, *f.limits).astype(np.int8)
    table = f.c.emit.const(limited, "limits")
    return f.c.emit.call("byte_table", result, table, result=f.target.type)
