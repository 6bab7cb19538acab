"""variable_fully_connected: fully_connected with weights or a bias that are computed at run time.

Formula, layouts, attributes and rounding are those of fully_connected.py. Only the default loops
apply.
Semantics: TFLite's reference fully connected kernels.
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, INT64, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph import OpCall, OpDef, TensorType
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops import fully_connected, int16x8, requantize
from firmwright.ops.kernel import Kernel

_BIAS = 2
_BIASES = {INT8: (INT32,), INT16: (INT32, INT64), FLOAT32: (FLOAT32,)}
_MOST_TERMS = {INT8: INT32.max // (255 * 255) - 1, INT16: 1 << 16, FLOAT32: 1 << 30}


def infer(call: OpCall) -> tuple[TensorType, ...]:
    shape, x, w = fully_connected.output_shape(call), call.input(0), call.input(1)
    if (x.dtype, w.dtype) not in ((INT8, INT8), (INT16, INT8), (FLOAT32, FLOAT32)):
        raise NotSupportedError(f"{x.dtype.name} input with {w.dtype.name} weights")
    if call.has_input(_BIAS):
        bias = call.input(_BIAS)
        if bias.dtype not in _BIASES[x.dtype] or bias.elements != w.shape[0]:
            raise NotSupportedError(f"a bias with {bias.elements} {bias.dtype.name}")
    if w.shape[1] > _MOST_TERMS[x.dtype]:
        raise NotSupportedError(f"sums of {w.shape[1]} products")
    if x.dtype != FLOAT32:
        points = [requantize.per_tensor_quant(kind).zero_point for kind in (x, w, call.output)]
        if x.dtype == INT16 and any(points):
            raise NotSupportedError("int16 with a zero point other than 0")
    return (TensorType(shape, x.dtype, call.output.quantization),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    is_float, shape = call.input(0).dtype == FLOAT32, call.output.shape
    wide = np.float64 if is_float else np.int64
    x, w = (array.astype(wide) for array in arrays[:2])
    bias = arrays[_BIAS].reshape(-1).astype(wide) if call.has_input(_BIAS) else wide(0)
    x = x.reshape(-1, w.shape[1])
    if is_float:
        low, high = requantize.float_activation_range(call.str_attr("activation"))
        return (np.clip(x @ w.T + bias, low, high).astype(np.float32).reshape(shape),)
    zero_points = [requantize.per_tensor_quant(call.input(index)).zero_point for index in (0, 1)]
    sums = (x - zero_points[0]) @ (w - zero_points[1]).T + bias
    step, kind = fully_connected.defined_requantization(call), call.output.dtype
    if isinstance(step, requantize.Requantization):
        return (int16x8.apply_int64_requant(step, sums, kind).reshape(shape),)
    return (step.apply(sums, kind).reshape(shape),)


def lower(call: OpCall, b: Kernel) -> None:
    outputs, inputs = call.input(1).shape
    wide, finish = FLOAT32, None
    if call.input(0).dtype != FLOAT32:
        wide = INT64 if int16x8.has_int64_sum(call) else INT32
        step = fully_connected.defined_requantization(call)
        finish = int16x8.requantize_epilogue(b, step, wide, call.output.dtype)
    bias = None
    if call.has_input(_BIAS):
        bias = b.view("bias", b.input(_BIAS), 0, (outputs,))
    with b.for_("n", call.input(0).elements // inputs) as n:
        row = b.view("row", b.input(0), n * inputs, (inputs,))
        out = b.view("out", b.y, n * outputs, (outputs,), access="w")
        with b.for_("o", outputs) as o:
            acc = b.register("acc", wide, 0.0 if finish is None else 0)
            with b.for_("i", inputs) as i:
                acc.add(_product(call, b.load(row, [i]), b.load(b.input(1), [o, i]), wide))
            total = acc.value if bias is None else acc.value + b.load(bias, [o]).cast(wide)
            if finish is None:
                b.store(out, [o], requantize.apply_activation(total, call.str_attr("activation")))
            else:
                b.store(out, [o], finish(total, o))


def _product(call: OpCall, x: ArithExpr, w: ArithExpr, wide: DType) -> ArithExpr:
    if wide == FLOAT32:
        return x * w
    left, right = (
        value.cast(INT32) - requantize.per_tensor_quant(call.input(index)).zero_point
        for index, value in enumerate((x, w))
    )
    return (left * right).cast(wide)


OPDEF = OpDef("variable_fully_connected", infer, reference, lower, macs=fully_connected.macs)
