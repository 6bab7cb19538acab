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
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import Array, Case, NotSupportedError, OpCall, OpDef, RowMap
from firmwright.ir.tir.builder import E
from firmwright.ir.tir.nodes import Var
from firmwright.ops.elementwise import broadcast_shape, elements
from firmwright.ops.expression_language import NAMES, in_numpy, in_tir, result_dtype
from firmwright.ops.kernel import Kernel
from firmwright.ops.rows import same_rows
from firmwright.ops.turned import is_turned, turned_arrays, turned_elements, turned_shapes


def infer(call: OpCall) -> tuple[TensorType, ...]:
    kinds = [call.input(index) for index in range(len(call.inputs))]
    if len(kinds) > len(NAMES):
        raise NotSupportedError(f"an expression of {len(kinds)} inputs")
    shape: tuple[int, ...] = ()
    for seen in turned_shapes(call):
        shape = broadcast_shape(shape, seen)
    variables = [E(Var(name, kind.dtype)) for name, kind in zip(NAMES, kinds, strict=False)]
    dtype = result_dtype(call.str_attr("formula"), variables)
    return (TensorType(shape, dtype, call.output.quantization),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    turned = turned_arrays(call, arrays)
    found = in_numpy(call.str_attr("formula"), turned).astype(call.output.dtype.np)
    return (np.array(np.broadcast_to(found, call.output.shape)),)


def lower(call: OpCall, b: Kernel) -> None:
    with (
        (turned_elements if is_turned(call) else elements)(call, b) as (values, store),
        in_tir(b, call.str_attr("formula"), values) as value,
    ):
        store(value)


def rows(call: OpCall) -> RowMap | None:
    """Rows of a turned input are no rows."""
    return None if is_turned(call) else same_rows(call)


def cases() -> Iterator[Case]:
    """TFLite has no such operator; tests/onnx covers it."""
    return iter(())


OPDEF = OpDef(
    name="expression",
    infer=infer,
    reference=reference,
    lower=lower,
    rows=rows,
    imports={},
    cases=cases,
    dtypes=tuple(kind.name for kind in DTYPES if kind != HANDLE),
)
