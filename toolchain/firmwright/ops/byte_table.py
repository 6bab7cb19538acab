"""byte_table: look up each int8 value in a table of 256 results (input 1) for values from -128 on.

Frontends create it for any chain of real functions between two quantized tensors.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import INT8, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import OpCall, OpDef
from firmwright.ir.tir.builder import INDEX
from firmwright.ops.kernel import Kernel
from firmwright.ops.row_windows import elementwise_row_window

_ENTRIES = 256


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, table = call.input(0), call.constant(1)
    if x.dtype != INT8 or table is None or (table.dtype, table.shape) != (INT8, (_ENTRIES,)):
        raise NotSupportedError("a lookup table other than 256 constant int8 values for int8")
    return (TensorType(x.shape, INT8, call.output.quantization),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    return (np.asarray(arrays[1][arrays[0].astype(np.int64) - INT8.min]),)


def lower(call: OpCall, b: Kernel) -> None:
    count, table = call.output.elements, b.input(1)
    with (
        b.view("in", b.input(0), 0, (count,)) as x,
        b.view("out", b.y, 0, (count,), access="w") as y,
        b.for_("i", count) as i,
    ):
        b.store(y, [i], b.load(table, [b.load(x, [i]).cast(INDEX) - INT8.min]))


OPDEF = OpDef(
    "byte_table", infer, reference, lower, {}, ("int8",), row_access=elementwise_row_window
)
