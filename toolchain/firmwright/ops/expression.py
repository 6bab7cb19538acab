"""expression: a formula, element by element, over inputs that broadcast.

Attribute `formula`, in the language of expression_language.py; `perms`, where it is there, has for
each input the order in which its axes are read (turned.py). Elements are plain numbers of any type:
no quantisation plays a part. Each step of the formula rounds to its element type, so kernel
and reference agree bit for bit but for the functions of C's math library.
Frontends say with it what has no operator of its own; neighbours become one (fuse_expressions.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from firmwright.base.dtypes import DTYPES, HANDLE
from firmwright.ir import tir
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import (
    Array,
    ConformanceCase,
    NotSupportedError,
    OpCall,
    OpDef,
    RowWindow,
)
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
        raise NotSupportedError(f"an expression of {len(kinds)} inputs")
    shape: tuple[int, ...] = ()
    for seen in permuted_shapes(call):
        shape = broadcast_shape(shape, seen)
    variables = [
        ArithExpr(tir.Var(name, kind.dtype)) for name, kind in zip(INPUT_NAMES, kinds, strict=False)
    ]
    dtype = result_dtype(call.str_attr("formula"), variables)
    return (TensorType(shape, dtype, call.output.quantization),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    turned = permuted_arrays(call, arrays)
    found = evaluate_in_numpy(call.str_attr("formula"), turned).astype(call.output.dtype.np)
    return (np.array(np.broadcast_to(found, call.output.shape)),)


def lower(call: OpCall, b: Kernel) -> None:
    with (
        (permuted_elements if has_permuted_inputs(call) else loop_over_elements)(call, b) as (
            values,
            store,
        ),
        lower_expression(b, call.str_attr("formula"), values) as value,
    ):
        store(value)


def rows(call: OpCall) -> RowWindow | None:
    """Rows of a turned input are no rows."""
    return None if has_permuted_inputs(call) else elementwise_row_window(call)


def cases() -> Iterator[ConformanceCase]:
    """TFLite has no such operator; tests/onnx covers it."""
    return iter(())


OPDEF = OpDef(
    name="expression",
    infer=infer,
    reference=reference,
    lower=lower,
    row_access=rows,
    imports={},
    cases=cases,
    dtypes=tuple(kind.name for kind in DTYPES if kind != HANDLE),
)
