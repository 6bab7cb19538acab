"""Reads and writes at places that other tensors say: indices that vary from run to run.

indexed_read: elements of x; indexed_write: x with `updates` put, or joined, at some places.
Attribute `mode` says what an index counts. `along`: indices along `axis`, whole slices are read.
`elements`: as many indices as results, each along `axis`. `slices`: the last axis of the indices is
a tuple of coordinates, behind the first `batch_dims` ones, which run in step. An index below 0
counts from the end; one outside of the input is taken for the nearest inside: nothing is ever read
or written elsewhere. Writes: `step` none, add, mul, min or max, in the order of the indices.
Source of the semantics: ONNX's Gather, GatherElements, GatherND and the scatters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from firmwright.base.dtypes import INT32, INT64
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import Array, Case, NotSupportedError, OpCall, OpDef
from firmwright.ir.tir.builder import INDEX, E, binary, maximum, minimum, select
from firmwright.ir.tir.nodes import BinaryOp, Buffer
from firmwright.ops.kernel import Kernel
from firmwright.ops.moves import DTYPES

_STEPS: Mapping[str, tuple[BinaryOp, Any]] = {
    "add": ("add", np.add), "mul": ("mul", np.multiply), "min": ("min", np.minimum),
    "max": ("max", np.maximum),
}  # fmt: skip


def _check(call: OpCall) -> None:
    x, places = call.input(0), call.input(1)
    if x.dtype not in DTYPES or places.dtype not in (INT32, INT64):
        raise NotSupportedError(f"{x.dtype.name} at places of {places.dtype.name}")
    mode, rank = call.str_attr("mode"), len(x.shape)
    if mode in ("along", "elements"):
        if not 0 <= call.int_attr("axis") < rank:
            raise NotSupportedError(f"axis {call.int_attr('axis')} of {rank} dimensions")
        if mode == "elements" and len(places.shape) != rank:
            raise NotSupportedError(f"indices of {len(places.shape)} dimensions for {rank}")
    elif mode == "slices":
        batch = call.int_attr("batch_dims")
        if not places.shape or places.shape[-1] + batch > rank or batch >= len(places.shape):
            raise NotSupportedError(f"coordinates {list(places.shape)} in {list(x.shape)}")
    else:
        raise NotSupportedError(f"places of kind {mode!r}")


def _read_shape(call: OpCall) -> tuple[int, ...]:
    x, places = call.input(0).shape, call.input(1).shape
    match call.str_attr("mode"):
        case "along":
            axis = call.int_attr("axis")
            return (*x[:axis], *places, *x[axis + 1 :])
        case "elements":
            return places
    return (*places[:-1], *x[call.int_attr("batch_dims") + places[-1] :])


def infer_read(call: OpCall) -> tuple[TensorType, ...]:
    _check(call)
    return (TensorType(_read_shape(call), call.input(0).dtype, call.output.quantization),)


def infer_write(call: OpCall) -> tuple[TensorType, ...]:
    _check(call)
    x, updates, step = call.input(0), call.input(2), call.str_attr("step")
    if updates.shape != _read_shape(call) or updates.dtype != x.dtype:
        raise NotSupportedError(f"updates {list(updates.shape)} of {updates.dtype.name}")
    if step not in ("none", *_STEPS):
        raise NotSupportedError(f"updates joined by {step!r}")
    return (TensorType(x.shape, x.dtype, call.output.quantization),)


# ---- in numpy ----------------------------------------------------------------------------------


def _inside(places: Array, size: int) -> Array:
    wide = places.astype(np.int64)
    return np.asarray(np.clip(np.where(wide < 0, wide + size, wide), 0, size - 1))


def _coordinates(call: OpCall, places: Array) -> tuple[Array, ...]:
    """For every result, its place in x: one array an axis of x."""
    shape, x = _read_shape(call), call.input(0).shape
    at = np.indices(shape)
    match call.str_attr("mode"):
        case "along":
            axis, rank = call.int_attr("axis"), places.ndim
            picked = _inside(places, x[axis])[tuple(at[axis : axis + rank])]
            return (*at[:axis], picked, *at[axis + rank :])
        case "elements":
            axis = call.int_attr("axis")
            return (*at[:axis], _inside(places, x[axis]), *at[axis + 1 :])
    batch, count, lead = call.int_attr("batch_dims"), places.shape[-1], places.ndim - 1
    picked = [_inside(places[..., k], x[batch + k])[tuple(at[:lead])] for k in range(count)]
    return (*at[:batch], *picked, *at[lead:])


def reference_read(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    return (np.asarray(arrays[0][_coordinates(call, arrays[1])]),)


def reference_write(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    result, places = arrays[0].copy(), _coordinates(call, arrays[1])
    step = call.str_attr("step")
    if step == "none":
        result[places] = arrays[2]
    else:
        _STEPS[step][1].at(result, places, arrays[2])
    return (result,)


# ---- in TIR ------------------------------------------------------------------------------------


def _place(b: Kernel, places: Buffer, at: Sequence[E | int], size: int) -> E:
    found = b.load(places, at).cast(INDEX)
    return minimum(maximum(select(found < 0, found + size, found), 0), size - 1)


def _places(call: OpCall, b: Kernel, stack: ExitStack, at: Sequence[E]) -> list[E]:
    """The coordinates in x of the result at `at`."""
    x, places = b.input(0), b.input(1)

    def bound(name: str, index: Sequence[E | int], size: int) -> E:
        return stack.enter_context(b.let(name, _place(b, places, index, size)))

    match call.str_attr("mode"):
        case "along":
            axis, rank = call.int_attr("axis"), len(places.shape)
            picked = bound("place", at[axis : axis + rank], x.shape[axis])
            return [*at[:axis], picked, *at[axis + rank :]]
        case "elements":
            axis = call.int_attr("axis")
            return [*at[:axis], bound("place", at, x.shape[axis]), *at[axis + 1 :]]
    batch, lead = call.int_attr("batch_dims"), len(places.shape) - 1
    found = [
        bound(f"place{k}", [*at[:lead], k], x.shape[batch + k]) for k in range(places.shape[-1])
    ]
    return [*at[:batch], *found, *at[lead:]]


def lower_read(call: OpCall, b: Kernel) -> None:
    with ExitStack() as stack:
        at = [stack.enter_context(b.for_(f"i{k}", n)) for k, n in enumerate(call.output.shape)]
        b.store(b.y, at, b.load(b.input(0), _places(call, b, stack, at)))


def lower_write(call: OpCall, b: Kernel) -> None:
    count, updates, step = call.output.elements, b.input(2), call.str_attr("step")
    with (
        b.window("from", b.input(0), 0, (count,)) as x,
        b.window("to", b.y, 0, (count,), access="w") as y,
        b.for_("i", count) as i,
    ):
        b.store(y, [i], b.load(x, [i]))
    with ExitStack() as stack:
        at = [stack.enter_context(b.for_(f"u{k}", n)) for k, n in enumerate(updates.shape)]
        there = _places(call, b, stack, at)
        value = b.load(updates, at)
        if step != "none":
            value = binary(_STEPS[step][0], b.load(b.y, there), value)
        b.store(b.y, there, value)


def cases() -> Iterator[Case]:
    """TFLite has no such operators; tests/onnx covers them."""
    return iter(())


_NAMES = tuple(kind.name for kind in DTYPES)
OPDEFS = (
    OpDef("indexed_read", infer_read, reference_read, lower_read, {}, cases, _NAMES),
    OpDef("indexed_write", infer_write, reference_write, lower_write, {}, cases, _NAMES),
)
