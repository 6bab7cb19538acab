"""local_response_normalization and l2_normalization along the last axis.

    local: y = x (bias + alpha * sum of squares of window)^-beta, where the window is x
        at c - radius .. c + radius - 1
    l2: y = x / the root of the sum of squares; floats divide by at least 10^-6.

int8 l2_normalization: a fixed-point inverse root (five Newton steps) requantizes each
value, rounding twice, to scale 1/128. With `unsigned`, the factor 128 is applied before
the first step. Semantics: TFLite's reference LocalResponseNormalization and
L2Normalization.
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Rounding, multiply_by_quantized_multiplier
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.values import (
    L2NormalizationAttrs,
    LocalResponseNormalizationAttrs,
)
from firmwright.ir.tir.builder import INDEX, ArithExpr, immediate, maximum, minimum
from firmwright.ir.tir.builder import call_intrinsic as intrinsic
from firmwright.ops.fixed_point import inverse_root, inverse_root_shift
from firmwright.ops.kernel import Kernel
from firmwright.ops.libm_intrinsics import libm_function
from firmwright.ops.opdef import OpDef
from firmwright.ops.requantize import clamp, per_tensor_quant

_HALF, _THREE_QUARTERS = 0.5, 0.75


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x = call.input(0)
    if x.dtype != FLOAT32 or call.output.dtype != FLOAT32 or not x.shape:
        raise NotSupportedError(f"a local response normalization of {x.dtype.name}")
    return (TensorType(x.shape, FLOAT32),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(LocalResponseNormalizationAttrs)
    x = arrays[0].astype(np.float64)
    radius = attrs.radius
    bias = attrs.bias
    alpha = attrs.alpha
    beta = attrs.beta
    depth = x.shape[-1]
    sums_by_channel: list[Array] = []
    for c in range(depth):
        window = x[..., max(c - radius, 0) : min(c + radius, depth)]
        sums_by_channel.append((window**2).sum(axis=-1))
    sums = np.stack(sums_by_channel, axis=-1)
    with np.errstate(all="ignore"):
        return ((x * (bias + alpha * sums) ** -beta).astype(np.float32),)


def lower(call: OpCall, b: Kernel) -> None:
    attrs = call.attributes(LocalResponseNormalizationAttrs)
    depth = call.input(0).shape[-1]
    radius = attrs.radius
    rows = call.input(0).elements // depth
    bias = attrs.bias
    alpha = attrs.alpha
    beta = attrs.beta
    x, y = b.views("rows out", (rows, depth), b.input(0), b.y)
    with b.for_("row", rows) as row, b.for_("c", depth) as c:
        squares = b.register("squares", FLOAT32, 0.0)
        with b.for_("k", min(2 * radius, depth + radius)) as k:
            channel = b.let("at", c + k - radius)
            with b.if_(channel >= 0), b.if_(channel < depth):
                place = minimum(maximum(channel, 0), depth - 1)
                clamped = b.let("place", place.cast(INDEX))
                item = b.let("item", b.load(x, [row, clamped]))
                squares.add(item * item)
        total = squares.value * alpha + bias
        b.store(y, [row, c], b.load(x, [row, c]) * _inverse_power(total, beta))


def _inverse_power(x: ArithExpr, beta: float) -> ArithExpr:
    """Return x^-beta, for the usual exponents by square roots."""
    if beta not in (_HALF, _THREE_QUARTERS):
        return intrinsic("pow_f32", [x, ArithExpr(immediate(-beta, FLOAT32))], FLOAT32)
    root = libm_function("sqrt")(x)
    size = root if beta == _HALF else root * libm_function("sqrt")(root)
    return ArithExpr(immediate(1.0, FLOAT32)) / size


_OUTPUT_BITS = 7
_LEAST_LENGTH = 1e-6
_MOST_ELEMENTS = INT32.max // (255 * 255)


def _infer_l2(call: OpCall) -> tuple[TensorType, ...]:
    x, y = call.input(0), call.output
    if x.dtype not in (INT8, FLOAT32) or y.dtype != x.dtype or not x.shape:
        raise NotSupportedError(f"normalization of {x.dtype.name} to {y.dtype.name}")
    if x.dtype == INT8:
        per_tensor_quant(x)
        quant = per_tensor_quant(y)
        if (quant.scale, quant.zero_point) != (1 / 128, 0):
            raise NotSupportedError(
                "an int8 result must have scale 1/128 and zero point 0"
            )
        if x.shape[-1] > _MOST_ELEMENTS:
            raise NotSupportedError(f"a sum of more than {_MOST_ELEMENTS} int8 squares")
    return (TensorType(x.shape, x.dtype, y.quantization),)


def _reference_l2(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    if call.input(0).dtype == FLOAT32:
        values = arrays[0].astype(np.float64)
        length = np.sqrt((values * values).sum(axis=-1, keepdims=True))
        divisor = np.maximum(length, np.float32(_LEAST_LENGTH))
        return ((values / divisor).astype(np.float32),)
    x = arrays[0].astype(np.int64) - per_tensor_quant(call.input(0)).zero_point
    squares = (x * x).sum(axis=-1, keepdims=True)
    shift = inverse_root_shift(squares).astype(np.int64)
    if call.attributes(L2NormalizationAttrs).unsigned:
        x = x << _OUTPUT_BITS
    else:
        shift = shift + _OUTPUT_BITS
    factor = inverse_root(squares)
    y = multiply_by_quantized_multiplier(x, factor, shift, Rounding.TWICE)
    return (np.clip(y, INT8.min, INT8.max).astype(np.int8),)


def _lower_l2(call: OpCall, b: Kernel) -> None:
    attrs = call.attributes(L2NormalizationAttrs)
    is_float = call.input(0).dtype == FLOAT32
    depth = call.input(0).shape[-1]
    rows = call.input(0).elements // depth
    sum_dtype = FLOAT32 if is_float else INT32
    x, y = b.views("rows out", (rows, depth), b.input(0), b.y)
    with b.for_("row", rows) as row:
        squares = b.register("squares", sum_dtype, 0)

        def value(i: ArithExpr) -> ArithExpr:
            item = b.load(x, [row, i])
            if is_float:
                return item
            return item.cast(INT32) - per_tensor_quant(call.input(0)).zero_point

        with b.for_("i", depth) as i:
            v = b.let("v", value(i))
            squares.add(v * v)
        total = squares.value
        if is_float:
            size = b.let("length", maximum(_LEAST_LENGTH, libm_function("sqrt")(total)))
            with b.for_("i", depth) as i:
                b.store(y, [row, i], value(i) / size)
            return
        before, after = (_OUTPUT_BITS, 0) if attrs.unsigned else (0, _OUTPUT_BITS)
        factor = b.let("factor", intrinsic("inverse_root", [total], INT32))
        shift = b.let("shift", intrinsic("inverse_root_shift", [total], INT32) + after)
        with b.for_("i", depth) as i:
            step = [value(i) << before, factor, shift]
            scaled = intrinsic("requantize_twice", step, INT32)
            b.store(y, [row, i], clamp(scaled, INT8.min, INT8.max, INT8))


OPDEFS: tuple[OpDef, ...] = (
    OpDef(
        "local_response_normalization",
        infer,
        reference,
        lower,
    ),
    OpDef(
        "l2_normalization",
        _infer_l2,
        _reference_l2,
        _lower_l2,
    ),
)
