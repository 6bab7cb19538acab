"""reduction: an expression over broadcast inputs, reduced along some axes.

Attributes: `formula` (expression_language.py), `step` (add, mul, min, max; for bools `and`, `or`),
`axes` (of the broadcast shape, increasing), `keep_dims`; `perms` as in expression. For example,
the formula `a * b` with `add`, inputs [m, k, 1] and [1, k, n] and axes [1] is a matrix product.
Elements are not quantized. Float sums run in axis order from the neutral element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from firmwright.base.dtypes import BOOL, DTYPES, HANDLE, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.ir import tir
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import OpCall, OpDef
from firmwright.ir.tir.builder import ArithExpr, binary_expr
from firmwright.ops import expression
from firmwright.ops.axis_reduction import output_index, reduced_shape
from firmwright.ops.expression_language import evaluate_in_numpy, lower_expression
from firmwright.ops.kernel import Kernel
from firmwright.ops.permuted_inputs import input_permutations, load_element, permuted_arrays

_STEPS: Mapping[str, tuple[tir.BinaryOp, Any]] = {
    "add": ("add", np.add), "mul": ("mul", np.multiply), "min": ("min", np.minimum),
    "max": ("max", np.maximum), "and": ("and", np.logical_and), "or": ("or", np.logical_or),
}  # fmt: skip


def _neutral_element(step: str, kind: DType) -> float:
    match step:
        case "add" | "or":
            return 0
        case "mul" | "and":
            return 1
        case "max":
            return float("-inf") if kind.is_float else kind.min
    return float("inf") if kind.is_float else kind.max


def _unreduced_type(call: OpCall) -> TensorType:
    return expression.infer(call)[0]


def infer(call: OpCall) -> tuple[TensorType, ...]:
    unreduced, axes, step = _unreduced_type(call), call.ints_attr("axes"), call.str_attr("step")
    if step not in _STEPS or (unreduced.dtype == BOOL) != (step in ("and", "or")):
        raise NotSupportedError(f"{unreduced.dtype.name} reduced by {step!r}")
    if any(not 0 <= axis < len(unreduced.shape) for axis in axes):
        raise NotSupportedError(f"axes {list(axes)} of {len(unreduced.shape)} dimensions")
    shape = reduced_shape(unreduced.shape, axes, bool(call.int_attr("keep_dims")))
    return (TensorType(shape, unreduced.dtype),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the reduced values; floats are computed in double."""
    unreduced, permuted = _unreduced_type(call), permuted_arrays(call, arrays)
    values = np.broadcast_to(evaluate_in_numpy(call.str_attr("formula"), permuted), unreduced.shape)
    if unreduced.dtype.is_float:
        values = values.astype(np.float64)
    with np.errstate(all="ignore"):
        reduced = _STEPS[call.str_attr("step")][1].reduce(
            values,
            axis=call.ints_attr("axes"),
            initial=_neutral_element(call.str_attr("step"), unreduced.dtype),
        )
        return (np.asarray(reduced).astype(unreduced.dtype.np).reshape(infer(call)[0].shape),)


def lower(call: OpCall, b: Kernel) -> None:
    unreduced, axes = _unreduced_type(call), call.ints_attr("axes")
    sources = [b.input(index) for index in range(len(call.inputs))]
    op, _ = _STEPS[call.str_attr("step")]
    index: dict[int, ArithExpr | int] = {}
    with ExitStack() as outer:
        for axis, n in enumerate(unreduced.shape):
            if axis not in axes:
                index[axis] = outer.enter_context(b.for_(f"i{axis}", n)) if n > 1 else 0
        acc = b.reg("acc", unreduced.dtype)
        b.store(acc, [0], _neutral_element(call.str_attr("step"), unreduced.dtype))
        with ExitStack() as inner:
            for axis in axes:
                n = unreduced.shape[axis]
                index[axis] = inner.enter_context(b.for_(f"k{axis}", n)) if n > 1 else 0
            values = [
                load_element(b, source, perm, index, len(unreduced.shape))
                for source, perm in zip(sources, input_permutations(call), strict=True)
            ]
            with lower_expression(b, call.str_attr("formula"), values) as value:
                b.store(acc, [0], binary_expr(op, b.load(acc, [0]), value))
        b.store(b.y, output_index(call, index), b.load(acc, [0]))


def macs(call: OpCall) -> int:
    """Return the number of summed products; 0 for other reductions."""
    if (call.str_attr("formula"), call.str_attr("step")) != ("a * b", "add"):
        return 0
    return _unreduced_type(call).elements


OPDEF = OpDef(
    name="reduction",
    infer=infer,
    reference=reference,
    lower=lower,
    dtypes=tuple(kind.name for kind in DTYPES if kind != HANDLE),
    macs=macs,
)
