"""Orders along one axis: where the extreme is, the greatest k, sums and products so far.

arg_extreme: the index of the greatest value (`least`: the least), as int64; of equals the first, or
with `last` the last. top_along: the `k` greatest (`least`: least) values in order and their
indices; of equals the one with the lower index comes first. cumulative: y[i] is `step` (add, mul)
of x[0] to x[i], without x[i] if `exclusive`, from the end if `reverse`. Attribute `axis`. Elements
are plain numbers.
Source of the semantics: ONNX's ArgMax, ArgMin, TopK, CumSum, CumProd.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import numpy as np

from firmwright.base.dtypes import BOOL, INT64
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import Array, Case, NotSupportedError, OpCall, OpDef
from firmwright.ir.tir.builder import E, binary, logical_and
from firmwright.ops.kernel import Kernel
from firmwright.ops.moves import DTYPES

_NUMBERS = tuple(kind for kind in DTYPES if kind != BOOL)


def _axis(call: OpCall) -> int:
    axis, x = call.int_attr("axis"), call.input(0)
    if x.dtype not in _NUMBERS or not 0 <= axis < len(x.shape):
        raise NotSupportedError(f"an order of {x.dtype.name} along axis {axis}")
    return axis


def _with(index: Sequence[E | int], axis: int, place: E | int) -> list[E | int]:
    return [*index[:axis], place, *index[axis + 1 :]]


def _loops(call: OpCall, b: Kernel, stack: ExitStack) -> list[E | int]:
    """Loops over all axes but the call's own."""
    return [
        0 if axis == call.int_attr("axis") else stack.enter_context(b.for_(f"i{axis}", n))
        for axis, n in enumerate(call.input(0).shape)
    ]


# ---- arg_extreme -------------------------------------------------------------------------------


def infer_arg(call: OpCall) -> tuple[TensorType, ...]:
    axis, shape = _axis(call), call.input(0).shape
    return (TensorType((*shape[:axis], *shape[axis + 1 :]), INT64),)


def reference_arg(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    axis = call.int_attr("axis")
    find = np.argmin if call.attrs["least"] else np.argmax
    if not call.attrs["last"]:
        return (np.asarray(find(arrays[0], axis=axis), np.int64),)
    flipped = find(np.flip(arrays[0], axis), axis=axis)
    return (np.asarray(arrays[0].shape[axis] - 1 - flipped, np.int64),)


def lower_arg(call: OpCall, b: Kernel) -> None:
    x, axis = b.input(0), call.int_attr("axis")
    better = {(False, False): "gt", (False, True): "ge", (True, False): "lt", (True, True): "le"}
    op = better[bool(call.attrs["least"]), bool(call.attrs["last"])]
    with ExitStack() as stack:
        index = _loops(call, b, stack)
        best, where = b.reg("best", x.dtype), b.reg("where", INT64)
        b.store(best, [0], b.load(x, index))
        b.store(where, [0], 0)
        with (
            b.for_("k", x.shape[axis]) as k,
            b.let("item", b.load(x, _with(index, axis, k))) as item,
            b.if_(binary(op, item, b.load(best, [0]))),  # type: ignore[arg-type]  # a comparison
        ):
            b.store(best, [0], item)
            b.store(where, [0], k.cast(INT64))
        b.store(b.y, [*index[:axis], *index[axis + 1 :]], b.load(where, [0]))


# ---- top_along ---------------------------------------------------------------------------------


def infer_top(call: OpCall) -> tuple[TensorType, ...]:
    axis, shape, k = _axis(call), call.input(0).shape, call.int_attr("k")
    if not 1 <= k <= shape[axis]:
        raise NotSupportedError(f"the {k} greatest of {shape[axis]} values")
    found = (*shape[:axis], k, *shape[axis + 1 :])
    return (TensorType(found, call.input(0).dtype), TensorType(found, INT64))


def reference_top(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    axis, x = call.int_attr("axis"), arrays[0]
    # Floats are not negated by their order's reversal, whole numbers are flipped bit by bit.
    keys = x if call.attrs["least"] else (-x if x.dtype.kind == "f" else np.invert(x))
    order = np.take(
        np.argsort(keys, axis=axis, kind="stable"), np.arange(call.int_attr("k")), axis=axis
    )
    return (np.take_along_axis(x, order, axis), order.astype(np.int64))


def lower_top(call: OpCall, b: Kernel) -> None:
    """Each rank takes the best of those behind the one before it: no memory but the results."""
    x, axis, (values, places) = b.input(0), call.int_attr("axis"), b.outputs
    before, after = ("lt", "gt") if call.attrs["least"] else ("gt", "lt")
    with ExitStack() as stack:
        index = _loops(call, b, stack)
        rank = stack.enter_context(b.for_("rank", call.int_attr("k")))
        best, where = b.reg("best", x.dtype), b.reg("where", INT64)
        b.store(best, [0], b.load(x, index))
        b.store(where, [0], -1)
        with ExitStack() as inner:
            i = inner.enter_context(b.for_("i", x.shape[axis]))
            item = inner.enter_context(b.let("item", b.load(x, _with(index, axis, i))))
            last = inner.enter_context(b.let("last", _previous(rank)))
            value, place = (b.load(t, _with(index, axis, last)) for t in (values, places))
            # Behind the one before: a worse value, or the same at a higher index.
            worse = binary(after, item, value)  # type: ignore[arg-type]  # a comparison
            same = logical_and(item.equal(value), i.cast(INT64) > place)
            free = binary("or", rank.equal(0), binary("or", worse, same))
            inner.enter_context(b.if_(free))
            ahead = binary(before, item, b.load(best, [0]))  # type: ignore[arg-type]  # a comparison
            inner.enter_context(b.if_(binary("or", b.load(where, [0]) < 0, ahead)))
            b.store(best, [0], item)
            b.store(where, [0], i.cast(INT64))
        b.store(values, _with(index, axis, rank), b.load(best, [0]))
        b.store(places, _with(index, axis, rank), b.load(where, [0]))


def _previous(rank: E) -> E:
    """The rank before, 0 of the first one."""
    return binary("max", rank - 1, 0)


# ---- cumulative --------------------------------------------------------------------------------


def infer_cumulative(call: OpCall) -> tuple[TensorType, ...]:
    _axis(call)
    if call.str_attr("step") not in ("add", "mul"):
        raise NotSupportedError(f"values joined by {call.str_attr('step')!r}")
    return (TensorType(call.input(0).shape, call.input(0).dtype),)


def reference_cumulative(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    axis, x = call.int_attr("axis"), arrays[0]
    x = np.flip(x, axis) if call.attrs["reverse"] else x
    is_sum = call.str_attr("step") == "add"
    if call.attrs["exclusive"]:
        head = np.full_like(np.take(x, [0], axis=axis), 0 if is_sum else 1)
        rest = np.take(x, np.arange(x.shape[axis] - 1), axis=axis)
        x = np.concatenate([head, rest], axis=axis)
    found = (np.cumsum if is_sum else np.cumprod)(x, axis=axis, dtype=x.dtype)
    found = np.flip(found, axis) if call.attrs["reverse"] else found
    return (np.ascontiguousarray(found),)


def lower_cumulative(call: OpCall, b: Kernel) -> None:
    x, axis = b.input(0), call.int_attr("axis")
    length, op = x.shape[axis], call.str_attr("step")
    with ExitStack() as stack:
        index = _loops(call, b, stack)
        total = b.reg("total", x.dtype)
        b.store(total, [0], 0 if op == "add" else 1)
        with b.for_("k", length) as k:
            at = _with(index, axis, (length - 1) - k if call.attrs["reverse"] else k)
            joined = binary(op, b.load(total, [0]), b.load(x, at))  # type: ignore[arg-type]  # by infer
            if call.attrs["exclusive"]:
                with b.let("item", b.load(x, at)) as item:
                    b.store(b.y, at, b.load(total, [0]))
                    b.store(total, [0], binary(op, b.load(total, [0]), item))  # type: ignore[arg-type]  # by infer
            else:
                b.store(total, [0], joined)
                b.store(b.y, at, b.load(total, [0]))


def cases() -> Iterator[Case]:
    """TFLite has no such operators; tests/onnx covers them."""
    return iter(())


_NAMES = tuple(kind.name for kind in _NUMBERS)
OPDEFS = (
    OpDef("arg_extreme", infer_arg, reference_arg, lower_arg, {}, cases, _NAMES),
    OpDef("top_along", infer_top, reference_top, lower_top, {}, cases, _NAMES),
    OpDef(
        "cumulative", infer_cumulative, reference_cumulative, lower_cumulative, {}, cases, _NAMES
    ),
)
