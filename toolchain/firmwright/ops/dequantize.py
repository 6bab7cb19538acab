"""dequantize: y = scale * (x - zero point) in float32, per tensor.

Semantics: TFLite's Dequantize; the float32 product is rounded once.
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, UINT8, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.elementwise import lower_elementwise
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef
from firmwright.ops.requantize import per_tensor_quant
from firmwright.ops.row_windows import elementwise_row_window


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, y = call.input(0), call.output
    if x.dtype not in (INT8, UINT8, INT16) or y.dtype != FLOAT32:
        raise NotSupportedError(f"{x.dtype.name} dequantized to {y.dtype.name}")
    per_tensor_quant(x)
    return (TensorType(x.shape, FLOAT32),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    quant = per_tensor_quant(call.input(0))
    steps = (arrays[0].astype(np.int64) - quant.zero_point).astype(np.float32)
    return (steps * np.float32(quant.scale),)


def lower(call: OpCall, b: Kernel) -> None:
    q = per_tensor_quant(call.input(0))

    def value(x: Sequence[ArithExpr]) -> ArithExpr:
        return (x[0].cast(INT32) - q.zero_point).cast(FLOAT32) * q.scale

    lower_elementwise(b, value)


OPDEF = OpDef(
    "dequantize",
    infer,
    reference,
    lower,
    row_access=elementwise_row_window,
)
