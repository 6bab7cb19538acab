"""fully_connected: y[n, o] = activation(bias[o] + sum over i of x[n, i] * w[o, i]).

x is read as rows of `inputs` elements, w is [outputs, inputs]. `keep_dims` keeps the
leading dimensions of x instead of flattening them. int8: LiteRT scales the sum in
double and rounds halves away from zero, as does one rounding with a fitted multiplier
(double_requantize.py). TFLM rounds twice. int16: LiteRT scales in double too;
int16x8.py describes TFLM. variable_fully_connected has weights or a bias that are
computed at run time, or weights of int16, whose 64-bit sums LiteRT scales as TFLM does
those of int8 weights; only the default loops apply. Semantics: TFLite's reference fully
connected kernels and quantization specification.
"""

from collections.abc import Callable, Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, INT64, Array, DType
from firmwright.base.errors import InternalError, NotSupportedError
from firmwright.base.quant import Rounding
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.layers import ActivationAttrs, FullyConnectedAttrs
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops import int16x8, requantize
from firmwright.ops.conv2d import bias_of, onnx_requantization, weight_offsets
from firmwright.ops.double_requantize import (
    find_exact_multipliers,
    requantize_in_double,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef

__all__ = ["OPDEFS", "bias_of", "has_int32_multiplier", "requantization_of"]


def infer(call: OpCall) -> tuple[TensorType, ...]:
    shape = output_shape(call)
    requantize.check_weights_and_bias(call, 0)
    return (TensorType(shape, call.input(0).dtype, call.output.quantization),)


def output_shape(call: OpCall) -> tuple[int, ...]:
    x, w = call.input(0), call.input(1)
    if len(w.shape) != 2:
        raise NotSupportedError(f"weights of {len(w.shape)} dimensions")
    outputs, inputs = w.shape
    if not inputs or x.elements % inputs:
        raise NotSupportedError(f"{x.elements} input elements in rows of {inputs}")
    if not call.attributes(FullyConnectedAttrs).keep_dims:
        return (x.elements // inputs, outputs)
    if x.shape[-1] != inputs:
        raise NotSupportedError(
            f"keep_dims with rows of {x.shape[-1]}, weights of {inputs}"
        )
    return (*x.shape[:-1], outputs)


def requantization_of(call: OpCall) -> requantize.Requantization:
    """Return the int8 requantization; the layer must satisfy `has_int32_multiplier`."""
    step = int8_requantization(call)
    if not isinstance(step, requantize.Requantization):
        raise InternalError("a fully connected layer has no exact 31-bit multiplier")
    return step


def has_int32_multiplier(call: OpCall) -> bool:
    """Whether a 31-bit multiplier is exact; if not, only the default loops apply."""
    return isinstance(int8_requantization(call), requantize.Requantization)


def int8_requantization(call: OpCall) -> requantize.Requantization | int16x8.ExactScale:
    """Return the parameters that convert an int8 layer's sums to outputs."""
    attrs = call.attributes(ActivationAttrs)
    if call.numerics == "onnx":
        return onnx_requantization(call, 0)
    activation = attrs.activation
    factors = requantize.scale_factors(call)
    if call.numerics == "tflm":
        return requantize.make_requantization(
            factors, Rounding.TWICE, call.output, activation
        )
    rounded_once = requantize.make_requantization(
        factors, Rounding.ONCE, call.output, activation
    )
    low, high = requantize.sum_bounds(call, 0)
    exact = find_exact_multipliers(rounded_once, factors, low, high)
    if exact is not None:
        return exact
    return int16x8.exact_scale(factors, call.output, activation)


def defined_requantization(
    call: OpCall,
) -> requantize.Requantization | int16x8.ExactScale:
    """Return the profile's parameters, of int16 layers and of variable weights."""
    attrs = call.attributes(ActivationAttrs)
    factors = requantize.scale_factors(call)
    activation = attrs.activation
    if call.numerics != "tflm" and call.input(1).dtype != INT16:
        return int16x8.exact_scale(factors, call.output, activation)
    if int16x8.has_int64_sum(call):
        return int16x8.requant_with_16_bit_multiplier(factors, call.output, activation)
    return requantize.make_requantization(
        factors, Rounding.TWICE, call.output, activation
    )


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(ActivationAttrs)
    w = arrays[1].astype(np.float64) - requantize.weight_zero_point(call)
    x = arrays[0].astype(np.float64).reshape(-1, w.shape[1])
    shape = call.output.shape
    if int16x8.is_int16x8(call):
        sums = (x @ w.T).astype(np.int64) + bias_of(call, "int32")
        step = defined_requantization(call)
        if isinstance(step, requantize.Requantization):
            return (int16x8.requantize_sums(step, sums, INT16).reshape(shape),)
        return (step.apply(sums, INT16).reshape(shape),)
    if call.input(0).dtype == INT8:
        zero_point = requantize.per_tensor_quant(call.input(0)).zero_point
        acc = ((x - zero_point) @ w.T).astype(np.int64) + bias_of(call, "int32")
        return (_requantized(call, acc).reshape(shape),)
    total = x @ w.T + bias_of(call, "float32")
    return (requantize.apply_activation(total, attrs.activation).reshape(shape),)


def _requantized(call: OpCall, acc: Array) -> Array:
    attrs = call.attributes(ActivationAttrs)
    if call.numerics == "onnx":
        return requantize.apply_float32(call, acc)
    factors = requantize.scale_factors(call)
    step = requantize.make_requantization(
        factors, Rounding.TWICE, call.output, attrs.activation
    )
    if call.numerics == "tflm":
        return step.apply(acc, INT8)
    scaled = requantize_in_double(acc, np.array(factors)) + step.zero_point
    return np.asarray(np.clip(scaled, step.clamp_min, step.clamp_max), np.int8)


def lower(call: OpCall, b: Kernel) -> None:
    """Emit one dot product per output; integer biases contain the input zero point."""
    b.input(1)  # the weights are the first constant
    if call.input(0).dtype == FLOAT32:
        # The bias comes last, as in the reference kernel.
        bias = b.constant("bias", bias_of(call, "float32"), FLOAT32)
        _lower_rows(call, b, FLOAT32, None, bias=bias)
        return
    wide = int16x8.accumulator_dtype(call, 0)
    sums = weight_offsets(call).sum(axis=1, dtype=np.int64)
    offset = requantize.per_tensor_quant(call.input(0)).zero_point * sums
    start = b.constant("bias", bias_of(call, "int32") - offset, wide)
    is_int16 = int16x8.is_int16x8(call)
    step = defined_requantization(call) if is_int16 else int8_requantization(call)
    finish = int16x8.requantize_epilogue(b, step, wide, call.output.dtype)
    points = (0, requantize.weight_zero_point(call))
    _lower_rows(call, b, wide, finish, points, start=start)


def _lower_rows(
    call: OpCall,
    b: Kernel,
    wide: DType,
    finish: Callable[[ArithExpr, ArithExpr], ArithExpr] | None,
    zero_points: Sequence[int] = (),
    *,
    start: tir.Buffer | None = None,
    bias: tir.Buffer | None = None,
) -> None:
    """Emit dot products from `start`, plus `bias`; `finish` is None for floats."""
    attrs = call.attributes(ActivationAttrs)
    outputs, inputs = call.input(1).shape
    with b.for_("n", call.input(0).elements // inputs) as n:
        row = b.view("row", b.input(0), n * inputs, (inputs,))
        out = b.view("out", b.y, n * outputs, (outputs,), access="w")
        with b.for_("o", outputs) as o:
            zero = 0.0 if finish is None else 0
            acc = b.register("acc", wide, zero if start is None else b.load(start, [o]))
            with b.for_("i", inputs) as i:
                x = b.load(row, [i])
                w = b.load(b.input(1), [o, i])
                acc.add(requantize.multiply_quantized(x, w, zero_points, wide))
            total = acc.value
            if bias is not None:
                total = total + b.load(bias, [o]).cast(wide)
            if finish is None:
                b.store(out, [o], requantize.apply_activation(total, attrs.activation))
            else:
                b.store(out, [o], finish(total, o))


def macs(call: OpCall) -> int:
    return call.input(0).elements * call.input(1).shape[0]


_BIAS = 2
_BIASES = {
    (INT8, INT8): (INT32,),
    (INT16, INT8): (INT32, INT64),
    (INT16, INT16): (INT32, INT64),
    (FLOAT32, FLOAT32): (FLOAT32,),
}
"""Types of a bias by those of x and of the weights."""
_MOST_TERMS = {INT8: INT32.max // (255 * 255) - 1, INT16: 1 << 16, FLOAT32: 1 << 30}


def infer_variable(call: OpCall) -> tuple[TensorType, ...]:
    shape = output_shape(call)
    x = call.input(0)
    w = call.input(1)
    if (x.dtype, w.dtype) not in _BIASES:
        raise NotSupportedError(f"{x.dtype.name} input with {w.dtype.name} weights")
    if call.has_input(_BIAS):
        bias = call.input(_BIAS)
        if bias.dtype not in _BIASES[x.dtype, w.dtype] or bias.elements != w.shape[0]:
            raise NotSupportedError(f"a bias with {bias.elements} {bias.dtype.name}")
    if w.shape[1] > _MOST_TERMS[x.dtype]:
        raise NotSupportedError(f"sums of {w.shape[1]} products")
    if x.dtype != FLOAT32:
        requantize.check_zero_points(x, w, call.output)
    return (TensorType(shape, x.dtype, call.output.quantization),)


def reference_variable(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(ActivationAttrs)
    is_float = call.input(0).dtype == FLOAT32
    shape = call.output.shape
    wide = np.float64 if is_float else np.int64
    w = arrays[1].astype(wide)
    x = arrays[0].astype(wide).reshape(-1, w.shape[1])
    bias = arrays[_BIAS].reshape(-1).astype(wide) if call.has_input(_BIAS) else wide(0)
    if is_float:
        total = x @ w.T + bias
        return (requantize.apply_activation(total, attrs.activation).reshape(shape),)
    x_zero, w_zero = _zero_points(call)
    sums = (x - x_zero) @ (w - w_zero).T + bias
    step = defined_requantization(call)
    kind = call.output.dtype
    if isinstance(step, requantize.Requantization):
        return (int16x8.requantize_sums(step, sums, kind).reshape(shape),)
    return (step.apply(sums, kind).reshape(shape),)


def _zero_points(call: OpCall) -> tuple[int, int]:
    """Return the zero points of x and of the weights."""
    x, w = call.input(0), call.input(1)
    return (
        requantize.per_tensor_quant(x).zero_point,
        requantize.per_tensor_quant(w).zero_point,
    )


def lower_variable(call: OpCall, b: Kernel) -> None:
    wide, finish = FLOAT32, None
    points: Sequence[int] = ()
    if call.input(0).dtype != FLOAT32:
        wide = INT64 if int16x8.has_int64_sum(call) else INT32
        step = defined_requantization(call)
        finish = int16x8.requantize_epilogue(b, step, wide, call.output.dtype)
        points = _zero_points(call)
    bias = None
    if call.has_input(_BIAS):
        bias = b.view("bias", b.input(_BIAS), 0, call.input(1).shape[:1])
    _lower_rows(call, b, wide, finish, points, bias=bias)


OPDEFS: tuple[OpDef, ...] = (
    OpDef(
        "fully_connected",
        infer,
        reference,
        lower,
        macs=macs,
    ),
    OpDef(
        "variable_fully_connected",
        infer_variable,
        reference_variable,
        lower_variable,
        macs=macs,
    ),
)
