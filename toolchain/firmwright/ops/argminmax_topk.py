"""arg_min_max and top_k along `axis`.

arg_min_max returns the index of the greatest value (with `least`, the smallest), the
first of equals (with `last`, the last). top_k returns the `k` greatest (with `least`,
smallest) values in order, equal ones by index, and their indices. Results for NaN are
unspecified. Semantics: ONNX's ArgMax, ArgMin and TopK, of which TFLite's ArgMinMax and
TopKV2 are special cases.
"""

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from firmwright.base.dtypes import INT32, INT64, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.values import ArgMinMaxAttrs, SearchAttrs, TopKAttrs
from firmwright.ir.tir.builder import INDEX, ArithExpr, binary_expr, minimum
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef
from firmwright.ops.strided_copy import DTYPES

_NUMBERS = tuple(kind for kind in DTYPES if kind.is_int or kind.is_float)


def _checked_axis(call: OpCall) -> int:
    axis = call.attributes(SearchAttrs).axis
    x = call.input(0)
    if x.dtype not in _NUMBERS or not 0 <= axis < len(x.shape):
        raise NotSupportedError(f"comparing {x.dtype.name} along axis {axis}")
    return axis


def _index_dtype(kind: TensorType) -> DType:
    if kind.dtype not in (INT32, INT64):
        raise NotSupportedError(f"indices of type {kind.dtype.name}")
    return kind.dtype


def _replace_axis(
    index: Sequence[ArithExpr | int], axis: int, place: ArithExpr | int
) -> list[ArithExpr | int]:
    return [*index[:axis], place, *index[axis + 1 :]]


def _outer_loops(call: OpCall, b: Kernel, stack: ExitStack) -> list[ArithExpr | int]:
    searched = call.attributes(SearchAttrs).axis
    index: list[ArithExpr | int] = []
    for axis, n in enumerate(call.input(0).shape):
        if axis == searched:
            index.append(0)
        else:
            index.append(stack.enter_context(b.for_(f"i{axis}", n)))
    return index


def infer_arg_min_max(call: OpCall) -> tuple[TensorType, ...]:
    axis = _checked_axis(call)
    shape = call.input(0).shape
    return (TensorType((*shape[:axis], *shape[axis + 1 :]), _index_dtype(call.output)),)


def reference_arg_min_max(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(ArgMinMaxAttrs)
    axis = attrs.axis
    find = np.argmin if attrs.least else np.argmax
    kind = call.output.dtype.np
    if not attrs.last:
        return (np.asarray(find(arrays[0], axis=axis), kind),)
    flipped = find(np.flip(arrays[0], axis), axis=axis)
    return (np.asarray(arrays[0].shape[axis] - 1 - flipped, kind),)


def lower_arg_min_max(call: OpCall, b: Kernel) -> None:
    attrs = call.attributes(ArgMinMaxAttrs)
    x, axis = b.input(0), attrs.axis
    better = {
        (False, False): "gt",
        (False, True): "ge",
        (True, False): "lt",
        (True, True): "le",
    }
    op = better[attrs.least, attrs.last]
    with ExitStack() as stack:
        index = _outer_loops(call, b, stack)
        best = b.register("best", x.dtype)
        where = b.register("where", b.y.dtype)
        best.set(b.load(x, index))
        where.set(0)
        with b.for_("k", x.shape[axis]) as k:
            item = b.let("item", b.load(x, _replace_axis(index, axis, k)))
            with b.if_(binary_expr(op, item, best.value)):  # type: ignore[arg-type]  # a comparison
                best.set(item)
                where.set(k.cast(b.y.dtype))
        b.store(b.y, [*index[:axis], *index[axis + 1 :]], where.value)


def infer_top_k(call: OpCall) -> tuple[TensorType, ...]:
    axis = _checked_axis(call)
    shape = call.input(0).shape
    k = call.attributes(TopKAttrs).k
    if not 1 <= k <= shape[axis] or len(call.outputs) != 2:
        raise NotSupportedError(f"k = {k} for {shape[axis]} values")
    if call.output.dtype != call.input(0).dtype:
        raise NotSupportedError(f"values returned as {call.output.dtype.name}")
    result_shape = (*shape[:axis], k, *shape[axis + 1 :])
    quantization = call.output.quantization
    indices = TensorType(result_shape, _index_dtype(call.outputs[1]))
    return (TensorType(result_shape, call.input(0).dtype, quantization), indices)


def reference_top_k(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(TopKAttrs)
    axis, x = attrs.axis, arrays[0]
    keys = x
    if not attrs.least:
        # Reverse the order: negate floats, invert the bits of integers (their minimum
        # has no negative).
        keys = -x if x.dtype.kind == "f" else np.invert(x)
    ranked = np.argsort(keys, axis=axis, kind="stable")
    order = np.take(ranked, range(attrs.k), axis=axis)
    return (np.take_along_axis(x, order, axis), order.astype(call.outputs[1].dtype.np))


def lower_top_k(call: OpCall, b: Kernel) -> None:
    """Emit insertions into the sorted outputs, in times that do not depend on data."""
    attrs = call.attributes(TopKAttrs)
    x = b.input(0)
    axis = attrs.axis
    k = attrs.k
    with ExitStack() as stack:
        outer = _outer_loops(call, b, stack)
        worst = b.register("worst", x.dtype, b.load(x, outer))
        i = stack.enter_context(b.for_("i", x.shape[axis]))
        item = b.let("item", b.load(x, _replace_axis(outer, axis, i)))

        def is_ahead(other: ArithExpr) -> ArithExpr:
            return item < other if attrs.least else item > other

        with b.if_(binary_expr("or", i < k, is_ahead(worst.value))):
            place = b.register("place", INDEX, k - 1)

            def store(rank: ArithExpr | int, values: Sequence[ArithExpr]) -> None:
                for result, value in zip(b.outputs, values, strict=True):
                    b.store(result, _replace_axis(outer, axis, rank), value)

            own = (item, i.cast(b.outputs[1].dtype))
            with b.for_("step", k - 1) as step:
                rank = b.let("rank", k - 1 - step)
                before = _replace_axis(outer, axis, rank - 1)
                moved = [b.load(y, before) for y in b.outputs]
                with b.if_(binary_expr("or", rank > i, is_ahead(moved[0]))):
                    store(rank, moved)
                    place.set(rank - 1)
                with b.else_(), b.if_(place.value.equal(rank)):
                    store(rank, own)
            with b.if_(place.value.equal(0)):
                store(0, own)
            worst.set(b.load(b.y, _replace_axis(outer, axis, minimum(i, k - 1))))


OPDEFS = (
    OpDef(
        "arg_min_max",
        infer_arg_min_max,
        reference_arg_min_max,
        lower_arg_min_max,
    ),
    OpDef(
        "top_k",
        infer_top_k,
        reference_top_k,
        lower_top_k,
    ),
)
