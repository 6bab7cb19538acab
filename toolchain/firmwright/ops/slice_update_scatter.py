"""dynamic_update_slice and scatter_nd: writes at indices known only at run time.

dynamic_update_slice overwrites part of input 0 with input 1, from the coordinates in input 2 on;
the part is shifted to fit inside the tensor. scatter_nd starts with zeros of the attribute `shape`
and adds each slice of input 1 at the leading coordinates in the rows of input 0; indices out of
range are clamped.
Semantics: TFLite's reference operators, which fail for indices out of range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from firmwright.base.dtypes import BOOL, FLOAT32, INT32, INT64, UINT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_import import ImportContext, ImportedCall
from firmwright.ir.graph.opdef import NumericsSpec, OpCall, OpDef, both_profiles
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.kernel import Kernel
from firmwright.ops.one_hot_reverse_sequence import check_data_and_indices, clamp_index
from firmwright.ops.strided_copy import (
    DTYPES,
    constant_ints,
    lower_fill,
    lower_flat_copy,
    require_inputs,
)

_NAMES = tuple(kind.name for kind in DTYPES)

# ---- dynamic_update_slice ----------------------------------------------------------------------


def _update_infer(call: OpCall) -> tuple[TensorType, ...]:
    check_data_and_indices(call, 0, 2)
    x, part, start = (call.input(index) for index in (0, 1, 2))
    fits = len(part.shape) == len(x.shape) and all(
        a <= n for a, n in zip(part.shape, x.shape, strict=True)
    )
    if part.dtype != x.dtype or not fits or start.shape != (len(x.shape),):
        raise NotSupportedError(f"an update of shape {list(part.shape)} in {list(x.shape)}")
    return (TensorType(x.shape, x.dtype, call.output.quantization),)


def _update_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    y, part = arrays[0].copy(), arrays[1]
    room = np.array(y.shape) - np.array(part.shape)
    first = np.clip(arrays[2].astype(np.int64), 0, room)
    y[tuple(slice(a, a + n) for a, n in zip(first, part.shape, strict=True))] = part
    return (y,)


def _update_lower(call: OpCall, b: Kernel) -> None:
    shape, part = call.input(0).shape, call.input(1).shape
    lower_flat_copy(b, b.input(0), b.y)
    with ExitStack() as stack:
        first = [
            stack.enter_context(
                b.let(f"first{k}", clamp_index(b.load(b.input(2), [k]), n - size + 1))
            )
            for k, (n, size) in enumerate(zip(shape, part, strict=True))
        ]
        index = stack.enter_context(b.loops("i", part))
        position = [a + i for a, i in zip(first, index, strict=True)]
        b.store(b.y, position, b.load(b.input(1), index))


def _update_import(context: ImportContext) -> ImportedCall:
    require_inputs(context, 3)
    return ImportedCall("dynamic_update_slice", {}, (0, 1, 2))


# ---- scatter_nd --------------------------------------------------------------------------------


def _scatter_parts(call: OpCall) -> tuple[int, int, int]:
    """Return the numbers of slices, of coordinates per index, and of elements per slice."""
    indices, shape = call.input(0).shape, call.ints_attr("shape")
    return math.prod(indices[:-1]), indices[-1], math.prod(shape[indices[-1] :])


def _scatter_infer(call: OpCall) -> tuple[TensorType, ...]:
    check_data_and_indices(call, 1, 0)
    indices, x, shape = call.input(0).shape, call.input(1), call.ints_attr("shape")
    if not indices or not 1 <= indices[-1] <= len(shape) or x.dtype in (BOOL, INT64):
        raise NotSupportedError(f"indices of shape {list(indices)} into {list(shape)}")
    if x.shape != (*indices[:-1], *shape[indices[-1] :]):
        raise NotSupportedError(f"updates of shape {list(x.shape)} in {list(shape)}")
    return (TensorType(shape, x.dtype, call.output.quantization),)


def _scatter_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    slices, named, size = _scatter_parts(call)
    shape, kind = call.ints_attr("shape"), call.output.dtype
    dtype = np.float32 if kind == FLOAT32 else np.int64
    y = np.zeros((*shape[:named], size), dtype)
    coordinates = arrays[0].reshape(slices, named)
    axes = tuple(np.clip(coordinates[:, k], 0, shape[k] - 1) for k in range(named))
    np.add.at(y, axes, arrays[1].reshape(slices, size).astype(dtype))
    return (y.reshape(shape).astype(kind.np),)


def _scatter_lower(call: OpCall, b: Kernel) -> None:
    slices, named, size = _scatter_parts(call)
    shape = call.ints_attr("shape")
    lower_fill(b, b.y, 0)
    with ExitStack() as stack:
        x = stack.enter_context(b.view("parts", b.input(1), 0, (slices, size)))
        index_view = stack.enter_context(b.view("places", b.input(0), 0, (slices, named)))
        y = stack.enter_context(b.view("out", b.y, 0, (*shape[:named], size), access="rw"))
        i = stack.enter_context(b.for_("i", slices))
        coordinates = [
            stack.enter_context(b.let(f"at{k}", clamp_index(b.load(index_view, [i, k]), shape[k])))
            for k in range(named)
        ]
        c = stack.enter_context(b.for_("c", size))
        b.store(
            y, [*coordinates, c], _add_wrapping(b.load(y, [*coordinates, c]), b.load(x, [i, c]))
        )


def _add_wrapping(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    kind = a.expr.dtype
    if kind == FLOAT32:
        return a + b
    if kind == INT32:
        return (a.cast(UINT32) + b.cast(UINT32)).cast(INT32)
    return (a.cast(INT32) + b.cast(INT32)).cast(kind)


def _scatter_import(context: ImportContext) -> ImportedCall:
    require_inputs(context, 3)
    return ImportedCall("scatter_nd", {"shape": constant_ints(context, 2, "shapes")}, (0, 1))


OPDEFS: tuple[OpDef, ...] = (
    OpDef(
        name="dynamic_update_slice",
        infer=_update_infer,
        reference=_update_reference,
        lower=_update_lower,
        imports={"tflite:DYNAMIC_UPDATE_SLICE": _update_import},
        dtypes=_NAMES,
        numerics=both_profiles(None, "copies", "reference_ops"),
    ),
    OpDef(
        name="scatter_nd",
        infer=_scatter_infer,
        reference=_scatter_reference,
        lower=_scatter_lower,
        imports={"tflite:SCATTER_ND": _scatter_import},
        dtypes=tuple(name for name in _NAMES if name not in ("bool", "int64")),
        numerics={"litert": NumericsSpec(None, "exact", "reference_ops ScatterNd")},
    ),
)
