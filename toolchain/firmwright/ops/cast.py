"""cast, to another element type, and logical_not.

Conversion to a narrower integer keeps the low bits; nonzero values become true. Floats
are truncated toward zero and saturated, and NaN becomes the greatest integer, as in
LiteRT (in TFLM: 0). float16 is converted by way of float32. Quantization is ignored.
Semantics: TFLite's Cast and LogicalNot.
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import (
    BOOL,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT32,
    UINT64,
    Array,
    DType,
)
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.tir.builder import ArithExpr, logical_not, maximum, minimum, select
from firmwright.ops.elementwise import compute_elements, lower_elementwise, unary_op
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef
from firmwright.ops.row_windows import elementwise_row_window
from firmwright.ops.storage_types import convert, convert_expr

_DTYPES = (
    BOOL,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    UINT8,
    UINT32,
    INT64,
    UINT64,
)
_MANTISSA_BITS = {FLOAT32: 24, FLOAT64: 53}
"""The significant bits of a float."""


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, y = call.input(0), call.output
    if x.dtype not in _DTYPES or y.dtype not in _DTYPES:
        raise NotSupportedError(f"a cast of {x.dtype.name} to {y.dtype.name}")
    return (TensorType(x.shape, y.dtype, y.quantization),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    kind = call.output.dtype
    x = convert(arrays[0], call.input(0).dtype.computed)
    if _is_truncation(call):
        inside = (x >= kind.min) & (x < float(kind.max + 1))
        whole = np.where(inside, x, 0).astype(kind.np)
        x = np.where(inside, whole, np.where(x < 0, kind.min, kind.max))
    return (convert(x, kind),)


def lower(call: OpCall, b: Kernel) -> None:
    own, kind = call.input(0).dtype.computed, call.output.dtype
    if _is_truncation(call):
        lower_elementwise(b, lambda x: _truncated(convert_expr(x[0], own), kind))
    else:
        lower_elementwise(b, lambda x: convert_expr(x[0], kind))


def _is_truncation(call: OpCall) -> bool:
    x, y = call.input(0).dtype, call.output.dtype
    return x.computed.is_float and y.is_int


def _truncated(x: ArithExpr, kind: DType) -> ArithExpr:
    """Return x as an integer; C converts only floats that fit."""
    below_end = kind.max - (kind.max >> _MANTISSA_BITS[x.expr.dtype])
    limited = maximum(minimum(x, float(below_end)), float(kind.min))
    return select(x < float(kind.max + 1), limited.cast(kind), kind.max)


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
