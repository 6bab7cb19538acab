"""cast, to another element type, and logical_not.

Conversion to a narrower integer keeps the low bits; nonzero values become true. Floats
convert only to int32: they are truncated toward zero and saturated, and NaN becomes the
greatest integer, as in LiteRT. Quantization is ignored. Semantics: TFLite's Cast and
LogicalNot.
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import (
    BOOL,
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT32,
    Array,
)
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.tir.builder import ArithExpr, logical_not, maximum, minimum, select
from firmwright.ops.elementwise import compute_elements, lower_elementwise, unary_op
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef
from firmwright.ops.row_windows import elementwise_row_window

_DTYPES = (BOOL, FLOAT32, INT8, INT16, INT32, UINT8, UINT32, INT64)
_BELOW_INT32_END = 2.0**31 - 2**7
"""The greatest float32 that fits."""


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, y = call.input(0), call.output
    narrow = x.dtype == FLOAT32 and y.dtype not in (FLOAT32, INT32, BOOL)
    if x.dtype not in _DTYPES or y.dtype not in _DTYPES or narrow:
        raise NotSupportedError(f"a cast of {x.dtype.name} to {y.dtype.name}")
    return (TensorType(x.shape, y.dtype, y.quantization),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    (x,) = arrays
    if _is_truncation(call):
        limited = np.clip(x.astype(np.float64), INT32.min, INT32.max)
        x = np.where(np.isnan(x), INT32.max, limited)
    return (x.astype(call.output.dtype.np),)


def lower(call: OpCall, b: Kernel) -> None:
    if _is_truncation(call):
        lower_elementwise(b, lambda x: _truncated(x[0]))
    else:
        lower_elementwise(b, lambda x: x[0].cast(call.output.dtype))


def _is_truncation(call: OpCall) -> bool:
    return call.input(0).dtype == FLOAT32 and call.output.dtype == INT32


def _truncated(x: ArithExpr) -> ArithExpr:
    """Return x as an int32; C converts only floats that fit."""
    limited = maximum(minimum(x, _BELOW_INT32_END), float(INT32.min))
    return select(x < float(INT32.max + 1), limited.cast(INT32), INT32.max)


OPDEFS: tuple[OpDef, ...] = (
    OpDef(
        "cast",
        infer,
        reference,
        lower,
        row_access=elementwise_row_window,
    ),
    unary_op(
        "logical_not",
        bool=compute_elements(
            lambda call, x: np.logical_not(x), lambda call, x: logical_not(x)
        ),
    ),
)
