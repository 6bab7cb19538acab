"""expression: an elementwise formula over inputs that broadcast.

Attribute `formula` is in the language of expression_language.py; optional `perms` holds the axis
permutation of each input (permuted_inputs.py). Elements are not quantized. Each operation rounds to
its element type, so kernel and reference agree bit for bit, except for libm functions. Frontends
use it for operators without a definition in this package.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import DTYPES, HANDLE, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir import tir
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import OpCall, OpDef, RowWindow
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.elementwise import broadcast_shape, loop_over_elements
from firmwright.ops.expression_language import (
    INPUT_NAMES,
    evaluate_in_numpy,
    lower_expression,
    result_dtype,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.permuted_inputs import (
    has_permuted_inputs,
    permuted_arrays,
    permuted_elements,
    permuted_shapes,
)
from firmwright.ops.row_windows import elementwise_row_window


def infer(call: OpCall) -> tuple[TensorType, ...]:
    kinds = [call.input(index) for index in range(len(call.inputs))]
    if len(kinds) > len(INPUT_NAMES):
        raise NotSupportedError(f"an expression with {len(kinds)} inputs")
    shape: tuple[int, ...] = ()
    for input_shape in permuted_shapes(call):
        shape = broadcast_shape(shape, input_shape)
    variables = [
        ArithExpr(tir.Var(name, kind.dtype)) for name, kind in zip(INPUT_NAMES, kinds, strict=False)
    ]
    dtype = result_dtype(call.str_attr("formula"), variables)
    return (TensorType(shape, dtype, call.output.quantization),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    permuted = permuted_arrays(call, arrays)
    result = evaluate_in_numpy(call.str_attr("formula"), permuted).astype(call.output.dtype.np)
    return (np.array(np.broadcast_to(result, call.output.shape)),)


def lower(call: OpCall, b: Kernel) -> None:
    with (
        (permuted_elements if has_permuted_inputs(call) else loop_over_elements)(call, b) as (
            values,
            store,
        ),
        lower_expression(b, call.str_attr("formula"), values) as value,
    ):
        store(value)


def row_window(call: OpCall) -> RowWindow | None:
    """Return the row window, or None if an input is permuted."""
    return None if has_permuted_inputs(call) else elementwise_row_window(call)


OPDEF = OpDef(
    name="expression",
    infer=infer,
    reference=reference,
    lower=lower,
    row_access=row_window,
    dtypes=tuple(kind.name for kind in DTYPES if kind != HANDLE),
)
