"""reduce_max, reduce_min and sum over some axes; arg_max and arg_min along one.

Attributes of the first three as of mean (`axes`, `keep_dims`), of the others `axis`: their result
is the int32 index of the first of the greatest (least) values. Exact, but for sums of floats.
Extremes copy, so input and output are quantised alike; sums are of floats and plain whole numbers.
Source of the semantics: TFLite's reference Reduce and ArgMinMax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, DType
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
from firmwright.ir.tir.builder import E, maximum, minimum
from firmwright.ops import mean
from firmwright.ops.arity import require_tensors
from firmwright.ops.kernel import Kernel
from firmwright.ops.moves import axis_of, constant_ints, ints, plain
from firmwright.ops.unary import BOTH, in_both

_LITERT: tuple[Numerics, ...] = ("litert",)
_CELL = in_both(NumericsCell(None, "exact; floats in order", "reference_ops Reduce"))


def _lowest(kind: DType) -> float:
    return float(np.finfo(np.float32).min) if kind == FLOAT32 else kind.min


def _greatest(kind: DType) -> float:
    return float(np.finfo(np.float32).max) if kind == FLOAT32 else kind.max


def _reduction(
    name: str,
    dtypes: Sequence[DType],
    meaning: Any,
    start: Callable[[DType], float],
    step: Callable[[E, E], E],
) -> OpDef:
    """The operator that takes every element into `start` by `step`."""

    def infer(call: OpCall) -> tuple[TensorType, ...]:
        x, axes, keep = call.input(0), call.ints_attr("axes"), bool(call.int_attr("keep_dims"))
        if x.dtype not in dtypes or x.quantization != call.output.quantization:
            raise NotSupportedError(f"a {name} of {x.dtype.name}, or one that requantises")
        shape = tuple(
            1 if axis in axes else length
            for axis, length in enumerate(x.shape)
            if keep or axis not in axes
        )
        return (TensorType(shape, x.dtype, call.output.quantization),)

    def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
        wide = arrays[0].astype(np.float64 if arrays[0].dtype == np.float32 else np.int64)
        found = np.asarray(meaning(wide, axis=call.ints_attr("axes")))
        return (found.astype(call.output.dtype.np).reshape(call.output.shape),)

    def lower(call: OpCall, b: Kernel) -> None:
        x, axes = call.input(0), call.ints_attr("axes")
        index: dict[int, E] = {}
        with ExitStack() as outer:
            for axis, length in enumerate(x.shape):
                if axis not in axes:
                    index[axis] = outer.enter_context(b.for_(f"i{axis}", length))
            acc = b.reg("acc", x.dtype)
            first = start(x.dtype)
            b.store(acc, [0], first if x.dtype == FLOAT32 else int(first))
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
            b.store(b.y, place, b.load(acc, [0]))

    def cases() -> Iterator[Case]:
        for kind in dtypes:
            oracles = BOTH if kind in (INT8, FLOAT32) else _LITERT
            for title, shape, axes, keep, y in (
                ("last", (3, 4, 5), (-1,), False, (3, 4)),
                ("image", (1, 4, 3, 2), (1, 2), True, (1, 1, 1, 2)),
            ):
                tensors = plain(shape, kind.name), ints(*axes)
                options = {"keep_dims": keep}
                out = (plain(y, kind.name),)
                yield Case(f"{title}_{kind.name}", name.upper(), tensors, out, options, oracles)

    def imported(context: ImportContext) -> Imported:
        return replace(mean.from_tflite(context), op=name)

    names = tuple(kind.name for kind in dtypes)
    imports = {f"tflite:{name.upper()}": imported}
    return OpDef(name, infer, reference, lower, imports, cases, names, _CELL)


def _arg(name: str, meaning: Any, better: Callable[[E, E], E]) -> OpDef:
    """The index of the first element than which none is `better`."""

    def infer(call: OpCall) -> tuple[TensorType, ...]:
        x, y, axis = call.input(0), call.output, call.int_attr("axis")
        if x.dtype not in (INT8, FLOAT32) or y.dtype != INT32:
            raise NotSupportedError(f"an index of {x.dtype.name} as {y.dtype.name}")
        return (TensorType((*x.shape[:axis], *x.shape[axis + 1 :]), INT32),)

    def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.asarray(meaning(arrays[0], axis=call.int_attr("axis")), np.int32),)

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
            b.store(b.y, [*index[:chosen], *index[chosen + 1 :]], b.load(where, [0]))

    def cases() -> Iterator[Case]:
        for kind in ("int8", "float32"):
            for title, axis, y in (("last", -1, (4, 3)), ("middle", 1, (4, 7))):
                tensors = plain((4, 3, 7), kind), ints(axis)
                out = (CaseTensor(y, "int32"),)
                yield Case(f"{title}_{kind}", name.upper(), tensors, out, {"output_type": 2})

    def imported(context: ImportContext) -> Imported:
        require_tensors(context, 2)
        axes, x = constant_ints(context, 1, "axes"), context.inputs[0]
        assert x is not None  # by require_tensors
        if len(axes) != 1:
            raise NotSupportedError(f"{len(axes)} axes for one index")
        return Imported(name, {"axis": axis_of(axes[0], len(x.shape))}, (0,))

    imports = {f"tflite:{name.upper()}": imported}
    return OpDef(name, infer, reference, lower, imports, cases, ("int8", "float32"), _CELL)


def _with(index: Sequence[E], axis: int, place: E | int) -> list[E | int]:
    return [*index[:axis], place, *index[axis + 1 :]]


_ALL = (INT8, INT16, INT32, FLOAT32)

OPDEFS: tuple[OpDef, ...] = (
    _reduction("reduce_max", _ALL, np.max, _lowest, maximum),
    _reduction("reduce_min", _ALL, np.min, _greatest, minimum),
    _reduction("sum", (INT32, FLOAT32), np.sum, lambda kind: 0, lambda a, b: a + b),
    _arg("arg_max", np.argmax, lambda a, b: a > b),
    _arg("arg_min", np.argmin, lambda a, b: a < b),
)
