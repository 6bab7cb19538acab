"""select: y is x_1 where x_0 (bool) is true, else x_2, with broadcasting of raw values.

A SELECT with one condition per row and values of higher rank is rejected.
Semantics: TFLite's reference Select and SelectV2.
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import BOOL, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.tir.builder import select
from firmwright.ops.elementwise import broadcast_shape, lower_elementwise
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef
from firmwright.ops.row_windows import elementwise_row_window
from firmwright.ops.strided_copy import DTYPES


def infer(call: OpCall) -> tuple[TensorType, ...]:
    condition = call.input(0)
    a = call.input(1)
    b = call.input(2)
    y = call.output
    is_uniform = a.dtype == b.dtype == y.dtype
    if condition.dtype != BOOL or a.dtype not in DTYPES or not is_uniform:
        raise NotSupportedError(
            f"a select by {condition.dtype.name} between {a.dtype.name} and "
            f"{b.dtype.name}"
        )
    shape = broadcast_shape(condition.shape, broadcast_shape(a.shape, b.shape))
    return (TensorType(shape, a.dtype, y.quantization),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    return (np.where(*arrays).astype(call.output.dtype.np),)


def lower(call: OpCall, b: Kernel) -> None:
    lower_elementwise(b, lambda x: select(x[0], x[1], x[2]))


OPDEF = OpDef(
    "select",
    infer,
    reference,
    lower,
    row_access=elementwise_row_window,
)
