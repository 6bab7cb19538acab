"""reduce_max, _min, _any and _all over some axes; arg_max and arg_min along one.

Attributes of the former as of mean (`axes`, `keep_dims`), of the latter `axis`: their result is the
index of the first of the greatest (least) values. All exact. Extremes copy, so input and output
are quantised alike; any and all are of bools.
Source of the semantics: TFLite's reference Reduce and ArgMinMax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from firmwright.base.dtypes import BOOL, FLOAT32, INT8, INT16, INT32, INT64, DType
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import (
    Array,
    Case,
    CaseTensor,
    ImportContext,
    Imported,
    NotSupportedError,
    Numerics,
    NumericsCell,
    OpCall,
    OpDef,
)
from firmwright.ir.tir.builder import E, binary, immediate, maximum, minimum
from firmwright.ops import mean
from firmwright.ops.arity import require_tensors
from firmwright.ops.kernel import Kernel
from firmwright.ops.moves import axis_of, constant_ints, ints, plain
from firmwright.ops.unary import BOTH, in_both

_LITERT: tuple[Numerics, ...] = ("litert",)
_CELL = in_both(NumericsCell(None, "exact", "reference_ops Reduce"))


def _lowest(kind: DType) -> float:
    return float(np.finfo(np.float32).min) if kind == FLOAT32 else kind.min


def _greatest(kind: DType) -> float:
    return float(np.finfo(np.float32).max) if kind == FLOAT32 else kind.max


def _cases(name: str, dtypes: Sequence[DType], in_tflm: Sequence[DType]) -> Iterator[Case]:
    for kind in dtypes:
        oracles = BOTH if kind in in_tflm else _LITERT
        for title, shape, axes, keep, y in (
            ("last", (3, 4, 5), (-1,), False, (3, 4)),
            ("image", (1, 4, 3, 2), (1, 2), True, (1, 1, 1, 2)),
        ):
            tensors = plain(shape, kind.name), ints(*axes)
            options = {"keep_dims": keep}
            out = (plain(y, kind.name),)
            yield Case(f"{title}_{kind.name}", name.upper(), tensors, out, options, oracles)


def reduction_op(
    name: str,
    dtypes: Sequence[DType],
    meaning: Any,
    start: Callable[[DType], float],
    step: Callable[[E, E], E],
    in_tflm: Sequence[DType] = (INT8, FLOAT32),
) -> OpDef:
    """The operator that takes every element into `start` by `step`; TFLM has it of `in_tflm`."""

    def infer(call: OpCall) -> tuple[TensorType, ...]:
        x, axes, keep = call.input(0), call.ints_attr("axes"), bool(call.int_attr("keep_dims"))
        if x.dtype not in dtypes or x.quantization != call.output.quantization:
            raise NotSupportedError(f"a {name} of {x.dtype.name}, or one that requantises")
        shape = reduced_shape(x.shape, axes, keep)
        return (TensorType(shape, x.dtype, call.output.quantization),)

    def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
        found = arrays[0].astype(np.float64 if arrays[0].dtype == np.float32 else np.int64)
        for axis in call.ints_attr("axes"):
            found = np.asarray(meaning(found, axis=axis, keepdims=True))
        return (found.astype(call.output.dtype.np).reshape(call.output.shape),)

    def lower(call: OpCall, b: Kernel) -> None:
        kind = call.input(0).dtype
        lower_reduction(call, b, E(immediate(start(kind), kind)), step, lambda acc: acc)

    def imported(context: ImportContext) -> Imported:
        return replace(mean.from_tflite(context), op=name)

    names = tuple(kind.name for kind in dtypes)
    imports = {f"tflite:{name.upper()}": imported}
    numerics = {str(profile): _CELL[profile] for profile in (BOTH if in_tflm else _LITERT)}
    cases = partial(_cases, name, dtypes, in_tflm)
    return OpDef(name, infer, reference, lower, imports, cases, names, numerics)


def reduced_shape(shape: Sequence[int], axes: Sequence[int], keep: bool) -> tuple[int, ...]:
    return tuple(
        1 if axis in axes else length
        for axis, length in enumerate(shape)
        if keep or axis not in axes
    )


def lower_reduction(
    call: OpCall, b: Kernel, start: E, step: Callable[[E, E], E], end: Callable[[E], E]
) -> None:
    """One output at a time: every element taken into `start`, in that dtype, by `step`."""
    x, axes = call.input(0), call.ints_attr("axes")
    index: dict[int, E] = {}
    with ExitStack() as outer:
        for axis, length in enumerate(x.shape):
            if axis not in axes:
                index[axis] = outer.enter_context(b.for_(f"i{axis}", length))
        acc = b.reg("acc", start.expr.dtype)
        b.store(acc, [0], start)
        with ExitStack() as inner:
            for axis in axes:
                index[axis] = inner.enter_context(b.for_(f"k{axis}", x.shape[axis]))
            item = b.load(b.input(0), [index[axis] for axis in range(len(x.shape))])
            b.store(acc, [0], step(b.load(acc, [0]), item))
        keep = bool(call.int_attr("keep_dims"))
        place = [
            0 if axis in axes else index[axis]
            for axis in range(len(x.shape))
            if keep or axis not in axes
        ]
        b.store(b.y, place, end(b.load(acc, [0])))


def _arg(name: str, meaning: Any, better: Callable[[E, E], E]) -> OpDef:
    """The index of the first element than which none is `better`."""

    def infer(call: OpCall) -> tuple[TensorType, ...]:
        x, y, axis = call.input(0), call.output, call.int_attr("axis")
        if x.dtype not in _ALL or y.dtype not in (INT32, INT64):
            raise NotSupportedError(f"an index of {x.dtype.name} as {y.dtype.name}")
        return (TensorType((*x.shape[:axis], *x.shape[axis + 1 :]), y.dtype),)

    def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
        found = meaning(arrays[0], axis=call.int_attr("axis"))
        return (np.asarray(found, call.output.dtype.np),)

    def lower(call: OpCall, b: Kernel) -> None:
        x, chosen = call.input(0), call.int_attr("axis")
        with ExitStack() as stack:
            index = [
                stack.enter_context(b.for_(f"i{axis}", 1 if axis == chosen else length))
                for axis, length in enumerate(x.shape)
            ]
            best, where = b.reg("best", x.dtype), b.reg("where", INT32)
            b.store(best, [0], b.load(b.input(0), _with(index, chosen, 0)))
            b.store(where, [0], 0)
            with (
                b.for_("k", x.shape[chosen]) as k,
                b.let("item", b.load(b.input(0), _with(index, chosen, k))) as item,
                b.if_(better(item, b.load(best, [0]))),
            ):
                b.store(best, [0], item)
                b.store(where, [0], k.cast(INT32))
            place = b.load(where, [0]).cast(call.output.dtype)
            b.store(b.y, [*index[:chosen], *index[chosen + 1 :]], place)

    def cases() -> Iterator[Case]:
        for kind, result in (
            ("int8", "int32"), ("float32", "int32"), ("int32", "int32"), ("float32", "int64")
        ):  # fmt: skip
            for title, axis, y in (("last", -1, (4, 3)), ("middle", 1, (4, 7))):
                tensors = plain((4, 3, 7), kind), ints(axis)
                options = {"output_type": 2 if result == "int32" else 4}
                oracles = BOTH if (kind, result) in _ARGS_OF_TFLM else _LITERT
                title = f"{title}_{kind}" + ("_int64" if result == "int64" else "")
                out = (CaseTensor(y, result),)
                yield Case(title, name.upper(), tensors, out, options, oracles)

    def imported(context: ImportContext) -> Imported:
        require_tensors(context, 2)
        axes, x = constant_ints(context, 1, "axes"), context.inputs[0]
        assert x is not None  # by require_tensors
        if len(axes) != 1:
            raise NotSupportedError(f"{len(axes)} axes for one index")
        return Imported(name, {"axis": axis_of(axes[0], len(x.shape))}, (0,))

    imports = {f"tflite:{name.upper()}": imported}
    names = tuple(kind.name for kind in _ALL)
    return OpDef(name, infer, reference, lower, imports, cases, names, _CELL)


def _with(index: Sequence[E], axis: int, place: E | int) -> list[E | int]:
    return [*index[:axis], place, *index[axis + 1 :]]


_ALL = (INT8, INT16, INT32, FLOAT32)
_ARGS_OF_TFLM = (("int8", "int32"), ("float32", "int32"))

OPDEFS: tuple[OpDef, ...] = (
    reduction_op("reduce_max", _ALL, np.max, _lowest, maximum),
    reduction_op("reduce_min", _ALL, np.min, _greatest, minimum),
    reduction_op("reduce_any", (BOOL,), np.any, lambda kind: 0, partial(binary, "or"), ()),
    reduction_op("reduce_all", (BOOL,), np.all, lambda kind: 1, partial(binary, "and"), (BOOL,)),
    _arg("arg_max", np.argmax, lambda a, b: a > b),
    _arg("arg_min", np.argmin, lambda a, b: a < b),
)
