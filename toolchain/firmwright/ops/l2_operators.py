"""l2_normalization (rows of length 1) and l2_pool2d (root of the mean square in a window).

l2_normalization divides by the root of the sum of squares along the last axis; floats divide by at
least 10^-6. int8: a fixed-point inverse root (five Newton steps) requantizes each value, rounding
twice, to scale 1/128. l2_pool2d is float only; attributes as in pooling.py.
Semantics: TFLite's reference L2Normalization and L2Pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Rounding, multiply_by_quantized_multiplier
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_import import ImportContext, ImportedCall
from firmwright.ir.graph.opdef import OpCall, OpDef, both_profiles
from firmwright.ir.tir.builder import ArithExpr, maximum
from firmwright.ir.tir.builder import call_intrinsic as intrinsic
from firmwright.ops import pooling
from firmwright.ops.average_pool2d import rounded_mean, tap_count, window_sums
from firmwright.ops.fixed_point_rsqrt import INVERSE_ROOT, INVERSE_ROOT_SHIFT
from firmwright.ops.import_checks import require_tensors
from firmwright.ops.kernel import Kernel
from firmwright.ops.libm_intrinsics import libm_function
from firmwright.ops.requantize import clamp, import_activation, tensor_quant

_OUTPUT_BITS = 7
_LEAST_LENGTH = 1e-6
_MOST_ELEMENTS = INT32.max // (255 * 255)

# ---- l2_normalization --------------------------------------------------------------------------


def _infer(call: OpCall) -> tuple[TensorType, ...]:
    x, y = call.input(0), call.output
    if x.dtype not in (INT8, FLOAT32) or y.dtype != x.dtype or not x.shape:
        raise NotSupportedError(f"normalization of {x.dtype.name} to {y.dtype.name}")
    if x.dtype == INT8:
        tensor_quant(x)
        quant = tensor_quant(y)
        if (quant.scale, quant.zero_point) != (1 / 128, 0):
            raise NotSupportedError("an int8 result must have scale 1/128 and zero point 0")
        if x.shape[-1] > _MOST_ELEMENTS:
            raise NotSupportedError(f"a sum of more than {_MOST_ELEMENTS} int8 squares")
    return (TensorType(x.shape, x.dtype, y.quantization),)


def _reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    if call.input(0).dtype == FLOAT32:
        values = arrays[0].astype(np.float64)
        length = np.sqrt((values * values).sum(axis=-1, keepdims=True))
        return ((values / np.maximum(length, np.float32(_LEAST_LENGTH))).astype(np.float32),)
    x = arrays[0].astype(np.int64) - tensor_quant(call.input(0)).zero_point
    squares = (x * x).sum(axis=-1, keepdims=True)
    shift = INVERSE_ROOT_SHIFT.meaning(squares).astype(np.int64) + _OUTPUT_BITS
    y = multiply_by_quantized_multiplier(x, INVERSE_ROOT.meaning(squares), shift, Rounding.TWICE)
    return (np.clip(y, INT8.min, INT8.max).astype(np.int8),)


def _lower(call: OpCall, b: Kernel) -> None:
    is_float, depth = call.input(0).dtype == FLOAT32, call.input(0).shape[-1]
    rows, sum_dtype = call.input(0).elements // depth, FLOAT32 if is_float else INT32
    with ExitStack() as stack:
        x = stack.enter_context(b.view("rows", b.input(0), 0, (rows, depth)))
        y = stack.enter_context(b.view("out", b.y, 0, (rows, depth), access="w"))
        row = stack.enter_context(b.for_("row", rows))
        squares = b.reg("squares", sum_dtype)
        b.store(squares, [0], 0)

        def value(i: ArithExpr) -> ArithExpr:
            item = b.load(x, [row, i])
            return item if is_float else item.cast(INT32) - tensor_quant(call.input(0)).zero_point

        with b.for_("i", depth) as i, b.let("v", value(i)) as v:
            b.store(squares, [0], b.load(squares, [0]) + v * v)
        total = b.load(squares, [0])
        if is_float:
            length = maximum(libm_function("sqrt")(total), _LEAST_LENGTH)
            with b.let("length", length) as size, b.for_("i", depth) as i:
                b.store(y, [row, i], value(i) / size)
            return
        with (
            b.let("factor", intrinsic("inverse_root", [total], INT32)) as factor,
            b.let("shift", intrinsic("inverse_root_shift", [total], INT32) + _OUTPUT_BITS) as shift,
            b.for_("i", depth) as i,
        ):
            scaled = intrinsic("requantize_twice", [value(i), factor, shift], INT32)
            b.store(y, [row, i], clamp(scaled, INT8.min, INT8.max, INT8))


def _import(context: ImportContext) -> ImportedCall:
    require_tensors(context, 1)
    if import_activation(context.node.options["fused_activation_function"]) != "none":
        raise NotSupportedError("an L2 normalization with an activation")
    return ImportedCall("l2_normalization", {}, (0,))


# ---- l2_pool2d ---------------------------------------------------------------------------------


def _pool_infer(call: OpCall) -> tuple[TensorType, ...]:
    if call.input(0).dtype != FLOAT32:
        raise NotSupportedError(f"an L2 pool of {call.input(0).dtype.name}")
    return pooling.infer(call)


def _pool_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    window, x = pooling.pool_window(call), arrays[0].astype(np.float64)
    mean = window_sums(x * x, window) / window_sums(np.ones_like(x), window)
    return (pooling.clip_to_activation(call, np.sqrt(mean)),)


def _pool_lower(call: OpCall, b: Kernel) -> None:
    window = pooling.pool_window(call)

    def finish(at: Any, total: ArithExpr) -> ArithExpr:
        return libm_function("sqrt")(rounded_mean(total, tap_count(window, at)))

    pooling.lower_pool(call, b, 0, lambda acc, x: acc + x * x, finish)


OPDEFS: tuple[OpDef, ...] = (
    OpDef(
        name="l2_normalization",
        infer=_infer,
        reference=_reference,
        lower=_lower,
        imports={"tflite:L2_NORMALIZATION": _import},
        dtypes=("int8", "float32"),
        numerics=both_profiles(Rounding.TWICE, "int32", "reference_integer_ops L2Normalization"),
    ),
    OpDef(
        name="l2_pool2d",
        infer=_pool_infer,
        reference=_pool_reference,
        lower=_pool_lower,
        imports={"tflite:L2_POOL_2D": pooling.pool_importer("l2_pool2d")},
        dtypes=("float32",),
        numerics=both_profiles(None, "float32", "reference_ops L2Pool"),
    ),
)
