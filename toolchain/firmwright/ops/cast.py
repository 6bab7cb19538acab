"""cast, to another element type, and logical_not.

Conversion to a narrower integer keeps the low bits; nonzero values become true. Floats convert only
to int32, truncated toward zero, because TFLite does not define the result of out-of-range values.
Quantization is ignored. Semantics: TFLite's Cast and LogicalNot.
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import BOOL, FLOAT32, INT8, INT16, INT32, INT64, UINT8, UINT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph import OpCall, OpDef, TensorType
from firmwright.ir.tir.builder import logical_not
from firmwright.ops.elementwise import compute_elements, lower_elementwise, unary_op
from firmwright.ops.import_checks import importer
from firmwright.ops.kernel import Kernel
from firmwright.ops.row_windows import elementwise_row_window

_DTYPES = (BOOL, FLOAT32, INT8, INT16, INT32, UINT8, UINT32, INT64)


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, y = call.input(0), call.output
    narrow = x.dtype == FLOAT32 and y.dtype not in (FLOAT32, INT32, BOOL)
    if x.dtype not in _DTYPES or y.dtype not in _DTYPES or narrow:
        raise NotSupportedError(f"a cast of {x.dtype.name} to {y.dtype.name}")
    return (TensorType(x.shape, y.dtype, y.quantization),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    return (arrays[0].astype(call.output.dtype.np),)


def lower(call: OpCall, b: Kernel) -> None:
    lower_elementwise(b, lambda x: x[0].cast(call.output.dtype))


OPDEFS: tuple[OpDef, ...] = (
    OpDef(
        "cast", infer, reference, lower, {"tflite:CAST": importer("cast")},
        row_access=elementwise_row_window,
    ),
    unary_op(
        "logical_not",
        bool=compute_elements(lambda call, x: np.logical_not(x), lambda call, x: logical_not(x)),
    ),
)  # fmt: skip
