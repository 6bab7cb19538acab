"""Orders along one axis: where the extreme is, and the greatest k.

arg_extreme: the index of the greatest value (`least`: the least); of equals the first, or with
`last` the last. top_k: the `k` greatest (`least`: least) values in order and their indices; of
equals the one with the lower index comes first. Attribute `axis`; indices are int32 or int64.
Stored values are compared as they are. Floats that are no numbers give what nobody promises.
Source of the semantics: ONNX's ArgMax, ArgMin and TopK; TFLite's ArgMinMax and TopKV2 are cases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import numpy as np

from firmwright.base.dtypes import BOOL, INT32, INT64, DType
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import (
    Array,
    Case,
    CaseTensor,
    ImportContext,
    Imported,
    NotSupportedError,
    NumericsCell,
    OpCall,
    OpDef,
)
from firmwright.ir.tir.builder import E, binary, logical_and
from firmwright.ops.arity import require_tensors
from firmwright.ops.kernel import Kernel
from firmwright.ops.moves import (
    BOTH,
    DTYPES,
    LITERT,
    axis_of,
    constant_ints,
    ints,
    plain,
    present,
    rank_of,
)
from firmwright.ops.unary import in_both

_NUMBERS = tuple(kind for kind in DTYPES if kind != BOOL)


def _axis(call: OpCall) -> int:
    axis, x = call.int_attr("axis"), call.input(0)
    if x.dtype not in _NUMBERS or not 0 <= axis < len(x.shape):
        raise NotSupportedError(f"an order of {x.dtype.name} along axis {axis}")
    return axis


def _index_dtype(kind: TensorType) -> DType:
    if kind.dtype not in (INT32, INT64):
        raise NotSupportedError(f"indices as {kind.dtype.name}")
    return kind.dtype


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
    return (TensorType((*shape[:axis], *shape[axis + 1 :]), _index_dtype(call.output)),)


def reference_arg(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    axis = call.int_attr("axis")
    find = np.argmin if call.attrs["least"] else np.argmax
    kind = call.output.dtype.np
    if not call.attrs["last"]:
        return (np.asarray(find(arrays[0], axis=axis), kind),)
    flipped = find(np.flip(arrays[0], axis), axis=axis)
    return (np.asarray(arrays[0].shape[axis] - 1 - flipped, kind),)


def lower_arg(call: OpCall, b: Kernel) -> None:
    x, axis = b.input(0), call.int_attr("axis")
    better = {(False, False): "gt", (False, True): "ge", (True, False): "lt", (True, True): "le"}
    op = better[bool(call.attrs["least"]), bool(call.attrs["last"])]
    with ExitStack() as stack:
        index = _loops(call, b, stack)
        best, where = b.reg("best", x.dtype), b.reg("where", b.y.dtype)
        b.store(best, [0], b.load(x, index))
        b.store(where, [0], 0)
        with (
            b.for_("k", x.shape[axis]) as k,
            b.let("item", b.load(x, _with(index, axis, k))) as item,
            b.if_(binary(op, item, b.load(best, [0]))),  # type: ignore[arg-type]  # a comparison
        ):
            b.store(best, [0], item)
            b.store(where, [0], k.cast(b.y.dtype))
        b.store(b.y, [*index[:axis], *index[axis + 1 :]], b.load(where, [0]))


# ---- top_k ---------------------------------------------------------------------------------


def infer_top(call: OpCall) -> tuple[TensorType, ...]:
    axis, shape, k = _axis(call), call.input(0).shape, call.int_attr("k")
    if not 1 <= k <= shape[axis] or len(call.outputs) != 2:
        raise NotSupportedError(f"the {k} greatest of {shape[axis]} values")
    if call.output.dtype != call.input(0).dtype:
        raise NotSupportedError(f"the greatest as {call.output.dtype.name}")
    found, quantization = (*shape[:axis], k, *shape[axis + 1 :]), call.output.quantization
    indices = TensorType(found, _index_dtype(call.outputs[1]))
    return (TensorType(found, call.input(0).dtype, quantization), indices)


def reference_top(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    axis, x = call.int_attr("axis"), arrays[0]
    # Floats are not negated by their order's reversal, whole numbers are flipped bit by bit.
    keys = x if call.attrs["least"] else (-x if x.dtype.kind == "f" else np.invert(x))
    order = np.take(
        np.argsort(keys, axis=axis, kind="stable"), np.arange(call.int_attr("k")), axis=axis
    )
    return (np.take_along_axis(x, order, axis), order.astype(call.outputs[1].dtype.np))


def lower_top(call: OpCall, b: Kernel) -> None:
    """Each rank takes the best of those behind the one before it: no memory but the results."""
    x, axis, (values, places) = b.input(0), call.int_attr("axis"), b.outputs
    before, after = ("lt", "gt") if call.attrs["least"] else ("gt", "lt")
    with ExitStack() as stack:
        index = _loops(call, b, stack)
        rank = stack.enter_context(b.for_("rank", call.int_attr("k")))
        best, where = b.reg("best", x.dtype), b.reg("where", places.dtype)
        b.store(best, [0], b.load(x, index))
        b.store(where, [0], -1)
        with ExitStack() as inner:
            i = inner.enter_context(b.for_("i", x.shape[axis]))
            item = inner.enter_context(b.let("item", b.load(x, _with(index, axis, i))))
            last = inner.enter_context(b.let("last", _previous(rank)))
            value, place = (b.load(t, _with(index, axis, last)) for t in (values, places))
            # Behind the one before: a worse value, or the same at a higher index.
            worse = binary(after, item, value)  # type: ignore[arg-type]  # a comparison
            same = logical_and(item.equal(value), i.cast(places.dtype) > place)
            free = binary("or", rank.equal(0), binary("or", worse, same))
            inner.enter_context(b.if_(free))
            ahead = binary(before, item, b.load(best, [0]))  # type: ignore[arg-type]  # a comparison
            inner.enter_context(b.if_(binary("or", b.load(where, [0]) < 0, ahead)))
            b.store(best, [0], item)
            b.store(where, [0], i.cast(places.dtype))
        b.store(values, _with(index, axis, rank), b.load(best, [0]))
        b.store(places, _with(index, axis, rank), b.load(where, [0]))


def _previous(rank: E) -> E:
    """The rank before, 0 of the first one."""
    return binary("max", rank - 1, 0)


# ---- import and cases --------------------------------------------------------------------------


def _arg_import(context: ImportContext) -> Imported:
    require_tensors(context, 2)
    axes = constant_ints(context, 1, "axes")
    if len(axes) != 1:
        raise NotSupportedError(f"{len(axes)} axes for one index")
    least = context.node.op == "ARG_MIN"
    attrs = {"axis": axis_of(axes[0], rank_of(context)), "least": least, "last": False}
    return Imported("arg_extreme", attrs, (0,))


def _arg_cases() -> Iterator[Case]:
    for builtin in ("ARG_MAX", "ARG_MIN"):
        for kind, result in (
            ("int8", "int32"), ("float32", "int32"), ("int32", "int32"), ("float32", "int64")
        ):  # fmt: skip
            for title, axis, y in (("last", -1, (4, 3)), ("middle", 1, (4, 7))):
                tensors = plain((4, 3, 7), kind), ints(axis)
                options = {"output_type": 2 if result == "int32" else 4}
                oracles = BOTH if (kind, result) in _ARGS_OF_TFLM else LITERT
                tail = "_int64" if result == "int64" else ""
                name = f"{builtin.lower()}_{title}_{kind}{tail}"
                yield Case(name, builtin, tensors, (CaseTensor(y, result),), options, oracles)


def _top_import(context: ImportContext) -> Imported:
    present(context, 2)
    counts = constant_ints(context, 1, "a number of elements")
    if len(counts) != 1 or not rank_of(context):
        raise NotSupportedError(f"{len(counts)} numbers of elements")
    attrs = {"axis": rank_of(context) - 1, "k": counts[0], "least": False}
    return Imported("top_k", attrs, (0,))


def _top_cases() -> Iterator[Case]:
    for name, shape, k in (("three", (2, 9), 3), ("all", (2, 2, 5), 5), ("one", (11,), 1)):
        for dtype in ("int8", "int16", "int32", "float32"):
            if name != "three" and dtype not in ("int8", "float32"):
                continue
            y = (*shape[:-1], k)
            inputs = (plain(shape, dtype), CaseTensor((), "int32", data=np.array(k, np.int32)))
            outputs = (plain(y, dtype), CaseTensor(y, "int32"))
            yield Case(f"{name}_{dtype}", "TOPK_V2", inputs, outputs, {}, LITERT)


_ARGS_OF_TFLM = (("int8", "int32"), ("float32", "int32"))
_NAMES = tuple(kind.name for kind in _NUMBERS)
OPDEFS = (
    OpDef(
        name="arg_extreme",
        infer=infer_arg,
        reference=reference_arg,
        lower=lower_arg,
        imports={"tflite:ARG_MAX": _arg_import, "tflite:ARG_MIN": _arg_import},
        cases=_arg_cases,
        dtypes=_NAMES,
        numerics=in_both(NumericsCell(None, "exact", "reference_ops ArgMinMax")),
    ),
    OpDef(
        name="top_k",
        infer=infer_top,
        reference=reference_top,
        lower=lower_top,
        imports={"tflite:TOPK_V2": _top_import},
        cases=_top_cases,
        dtypes=_NAMES,
        numerics={"litert": NumericsCell(None, "exact", "TopContainer")},
        limits="constant k",
    ),
)
