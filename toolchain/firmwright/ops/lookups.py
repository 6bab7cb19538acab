"""dynamic_gather, gather_nd, one_hot, reverse_sequence: places that are only known as it runs.

dynamic_gather takes slices of input 0 along `axis`, of which the indices (input 1) name one each;
the first `batch_dims` axes of both go together. gather_nd's indices have a row for each slice that
names a place along the first axes. one_hot is `on` at the index and `off` elsewhere along `axis`,
inputs 1 and 2. reverse_sequence turns around the first elements along `seq_dim`, as many as input 1
says for each index of `batch_dim`. An index outside of the input, at which TFLite's run fails, is
taken as the nearest inside of it: no access leaves a tensor.
Source of the semantics: TFLite's reference operators of these names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import numpy as np

from firmwright.base.dtypes import INT32, INT64
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
from firmwright.ir.tir.builder import INDEX, E, maximum, minimum, select
from firmwright.ops.kernel import Kernel
from firmwright.ops.moves import (
    DTYPES,
    LITERT,
    axis_of,
    constant_ints,
    plain,
    present,
    rank_of,
)
from firmwright.ops.unary import in_both

_NAMES = tuple(kind.name for kind in DTYPES)
_CELL = NumericsCell(None, "copies", "reference_ops")


def check(call: OpCall, data: int = 0, indices: int = 1) -> None:
    """A tensor of any element type, and indices of 32 or 64 bits."""
    x, places = call.input(data), call.input(indices)
    if x.dtype not in DTYPES or call.output.dtype != x.dtype:
        raise NotSupportedError(f"{call.op} of {x.dtype.name} giving {call.output.dtype.name}")
    if places.dtype not in (INT32, INT64):
        raise NotSupportedError(f"indices of {places.dtype.name}")


def inside(index: E, count: int) -> E:
    """`index` as one of `count` places."""
    return minimum(maximum(index.cast(INDEX), 0), count - 1)


# ---- dynamic_gather ----------------------------------------------------------------------------


def _gather_infer(call: OpCall) -> tuple[TensorType, ...]:
    check(call)
    x, indices = call.input(0).shape, call.input(1).shape
    axis, batch = call.int_attr("axis"), call.int_attr("batch_dims")
    if not 0 <= batch <= min(axis, len(indices)) or x[:batch] != indices[:batch]:
        raise NotSupportedError(f"a gather with {batch} batch dimensions along axis {axis}")
    shape = (*x[:axis], *indices[batch:], *x[axis + 1 :])
    return (TensorType(shape, call.output.dtype, call.output.quantization),)


def _gather_parts(call: OpCall) -> tuple[int, int, int, int, int]:
    """How many: batches, slices before the axis, elements along it, indices, elements a slice."""
    x, indices = call.input(0).shape, call.input(1).shape
    axis, batch = call.int_attr("axis"), call.int_attr("batch_dims")
    return (
        math.prod(x[:batch]),
        math.prod(x[batch:axis]),
        x[axis],
        math.prod(indices[batch:]),
        math.prod(x[axis + 1 :]),
    )


def _gather_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    batches, before, count, indices, size = _gather_parts(call)
    x = arrays[0].reshape(batches, before, count, size)
    places = np.clip(arrays[1].reshape(batches, indices), 0, count - 1)
    taken = np.stack([x[k][:, places[k]] for k in range(batches)])
    return (np.ascontiguousarray(taken.reshape(call.output.shape)),)


def _gather_lower(call: OpCall, b: Kernel) -> None:
    batches, before, count, indices, size = _gather_parts(call)
    with (
        b.window("slices", b.input(0), 0, (batches, before, count, size)) as x,
        b.window("places", b.input(1), 0, (batches, indices)) as places,
        b.window("out", b.y, 0, (batches, before, indices, size), access="w") as y,
        b.for_("batch", batches) as batch,
        b.for_("outer", before) as outer,
        b.for_("i", indices) as i,
        b.let("place", inside(b.load(places, [batch, i]), count)) as place,
        b.for_("c", size) as c,
    ):
        b.store(y, [batch, outer, i, c], b.load(x, [batch, outer, place, c]))


def embedding_lookup(context: ImportContext) -> Imported:
    """Rows of input 1 that input 0 names."""
    present(context, 2)
    return Imported("dynamic_gather", {"axis": 0, "batch_dims": 0}, (1, 0))


def index_tensor(shape: Sequence[int], count: int) -> CaseTensor:
    """Variable indices of `count` places."""
    return CaseTensor(tuple(shape), "int32", limits=(0, count - 1))


def _gather_cases() -> Iterator[Case]:
    for name, x, indices, y, axis, batch in (
        ("rows", (5, 3), (4,), (4, 3), 0, 0),
        ("middle", (2, 5, 3), (2, 2), (2, 2, 2, 3), 1, 0),
        ("batches", (2, 3, 4, 2), (2, 3), (2, 3, 3, 2), 2, 1),
    ):
        for dtype in ("int8", "float32"):
            options = {"axis": axis, "batch_dims": batch}
            inputs = (plain(x, dtype), index_tensor(indices, x[axis]))
            yield Case(f"{name}_{dtype}", "GATHER", inputs, (plain(y, dtype),), options)
    for dtype in ("int8", "float32"):
        table = plain((7, 4), dtype)
        table = CaseTensor(
            table.shape, dtype, table.scales, table.zero_points,
            data=np.arange(28).reshape(7, 4).astype(dtype),
        )  # fmt: skip
        inputs = (index_tensor((3,), 7), table)
        yield Case(f"table_{dtype}", "EMBEDDING_LOOKUP", inputs, (plain((3, 4), dtype),))


# ---- gather_nd ---------------------------------------------------------------------------------


def _nd_parts(call: OpCall) -> tuple[int, int, int]:
    """How many: slices, axes that an index names, elements a slice."""
    x, indices = call.input(0).shape, call.input(1).shape
    return math.prod(indices[:-1]), indices[-1], math.prod(x[indices[-1] :])


def _nd_infer(call: OpCall) -> tuple[TensorType, ...]:
    check(call)
    x, indices = call.input(0).shape, call.input(1).shape
    if not indices or not 1 <= indices[-1] <= len(x):
        raise NotSupportedError(f"indices of the shape {list(indices)} into {list(x)}")
    shape = (*indices[:-1], *x[indices[-1] :])
    return (TensorType(shape, call.output.dtype, call.output.quantization),)


def _nd_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    slices, named, _ = _nd_parts(call)
    places = arrays[1].reshape(slices, named)
    axes = tuple(np.clip(places[:, k], 0, arrays[0].shape[k] - 1) for k in range(named))
    return (np.ascontiguousarray(arrays[0][axes].reshape(call.output.shape)),)


def _nd_lower(call: OpCall, b: Kernel) -> None:
    slices, named, size = _nd_parts(call)
    shape = call.input(0).shape
    with ExitStack() as stack:
        x = stack.enter_context(b.window("slices", b.input(0), 0, (*shape[:named], size)))
        places = stack.enter_context(b.window("places", b.input(1), 0, (slices, named)))
        y = stack.enter_context(b.window("out", b.y, 0, (slices, size), access="w"))
        i = stack.enter_context(b.for_("i", slices))
        at = [
            stack.enter_context(b.let(f"at{k}", inside(b.load(places, [i, k]), shape[k])))
            for k in range(named)
        ]
        c = stack.enter_context(b.for_("c", size))
        b.store(y, [i, c], b.load(x, [*at, c]))


def _nd_cases() -> Iterator[Case]:
    for name, x, indices, y in (
        ("slices", (3, 3, 4), (5, 2), (5, 4)),
        ("elements", (3, 3), (2, 2, 2), (2, 2)),
        ("rows", (4, 5), (3, 1), (3, 5)),
    ):
        for dtype in ("int8", "float32") if name == "slices" else ("int8",):
            inputs = (plain(x, dtype), index_tensor(indices, min(x[: indices[-1]])))
            yield Case(f"{name}_{dtype}", "GATHER_ND", inputs, (plain(y, dtype),))


def _nd_import(context: ImportContext) -> Imported:
    present(context, 2)
    return Imported("gather_nd", {}, (0, 1))


# ---- one_hot -----------------------------------------------------------------------------------


def _hot_infer(call: OpCall) -> tuple[TensorType, ...]:
    check(call, 1, 0)
    if call.input(1).elements != 1 or call.input(2).elements != 1:
        raise NotSupportedError("values on and off that are not one each")
    shape, axis, depth = call.input(0).shape, call.int_attr("axis"), call.int_attr("depth")
    if depth < 1 or call.input(2).dtype != call.input(1).dtype:
        raise NotSupportedError(f"a depth of {depth}, or values on and off of two types")
    shape = (*shape[:axis], depth, *shape[axis:])
    return (TensorType(shape, call.output.dtype, call.output.quantization),)


def _hot_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    axis, depth = call.int_attr("axis"), call.int_attr("depth")
    hot = np.expand_dims(arrays[0], axis) == np.arange(depth).reshape(
        (-1,) + (1,) * (arrays[0].ndim - axis)
    )
    on, off = (array.reshape(()) for array in arrays[1:3])
    return (np.where(hot, on, off).astype(call.output.dtype.np),)


def _hot_lower(call: OpCall, b: Kernel) -> None:
    shape, axis, depth = call.input(0).shape, call.int_attr("axis"), call.int_attr("depth")
    before, after = math.prod(shape[:axis]), math.prod(shape[axis:])
    with (
        b.window("indices", b.input(0), 0, (before, after)) as indices,
        b.window("on", b.input(1), 0, (1,)) as on,
        b.window("off", b.input(2), 0, (1,)) as off,
        b.window("out", b.y, 0, (before, depth, after), access="w") as y,
        b.for_("outer", before) as outer,
        b.for_("k", depth) as k,
        b.for_("inner", after) as inner,
    ):
        is_hot = b.load(indices, [outer, inner]).cast(INDEX).equal(k)
        b.store(y, [outer, k, inner], select(is_hot, b.load(on, [0]), b.load(off, [0])))


def _hot_import(context: ImportContext) -> Imported:
    present(context, 4)
    depth = constant_ints(context, 1, "depths")
    if len(depth) != 1:
        raise NotSupportedError(f"{len(depth)} depths")
    axis = axis_of(context.node.options["axis"], rank_of(context) + 1)
    return Imported("one_hot", {"axis": axis, "depth": depth[0]}, (0, 2, 3))


def _hot_cases() -> Iterator[Case]:
    def scalar(value: float, dtype: str) -> CaseTensor:
        return CaseTensor((), dtype, data=np.array(value, dtype))

    for name, axis, y, dtype in (
        ("last", -1, (2, 3, 4), "float32"),
        ("first", 0, (4, 2, 3), "int8"),
        ("middle", 1, (2, 4, 3), "int32"),
    ):
        inputs = (
            CaseTensor((2, 3), "int32", limits=(-1, 4)),
            scalar(4, "int32"),
            scalar(5, dtype),
            scalar(-2, dtype),
        )
        out = (CaseTensor(y, dtype),)
        yield Case(f"{name}_{dtype}", "ONE_HOT", inputs, out, {"axis": axis}, LITERT)


# ---- reverse_sequence --------------------------------------------------------------------------


def _sequence_infer(call: OpCall) -> tuple[TensorType, ...]:
    check(call)
    x, batch, axis = call.input(0), call.int_attr("batch_dim"), call.int_attr("seq_dim")
    if batch == axis or call.input(1).shape != (x.shape[batch],):
        raise NotSupportedError(f"lengths of the shape {list(call.input(1).shape)}")
    return (TensorType(x.shape, x.dtype, call.output.quantization),)


def _sequence_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    batch, axis = call.int_attr("batch_dim"), call.int_attr("seq_dim")
    x = np.moveaxis(arrays[0], (batch, axis), (0, 1))
    y = x.copy()
    for k, length in enumerate(np.clip(arrays[1], 0, x.shape[1])):
        y[k, :length] = x[k, :length][::-1]
    return (np.ascontiguousarray(np.moveaxis(y, (0, 1), (batch, axis))),)


def _sequence_lower(call: OpCall, b: Kernel) -> None:
    shape = call.input(0).shape
    batch, axis = call.int_attr("batch_dim"), call.int_attr("seq_dim")
    with ExitStack() as stack:
        at = [stack.enter_context(b.for_(f"i{k}", n)) for k, n in enumerate(shape)]
        length = stack.enter_context(b.let("length", b.load(b.input(1), [at[batch]]).cast(INDEX)))
        turned = select(at[axis] < length, length - 1 - at[axis], at[axis])
        there = list(at)
        there[axis] = stack.enter_context(b.let("there", inside(turned, shape[axis])))
        b.store(b.y, at, b.load(b.input(0), there))


def _sequence_import(context: ImportContext) -> Imported:
    present(context, 2)
    rank, options = rank_of(context), context.node.options
    attrs = {name: axis_of(options[name], rank) for name in ("batch_dim", "seq_dim")}
    return Imported("reverse_sequence", attrs, (0, 1))


def _sequence_cases() -> Iterator[Case]:
    for name, seq, batch in (("rows", 1, 0), ("columns", 0, 2)):
        shape = (3, 4, 2)
        inputs = (
            CaseTensor(shape, "float32"),
            CaseTensor((shape[batch],), "int32", limits=(1, shape[seq])),
        )
        options = {"seq_dim": seq, "batch_dim": batch}
        yield Case(f"{name}_float32", "REVERSE_SEQUENCE", inputs, inputs[:1], options, LITERT)


OPDEFS: tuple[OpDef, ...] = (
    OpDef(
        name="dynamic_gather",
        infer=_gather_infer,
        reference=_gather_reference,
        lower=_gather_lower,
        imports={"tflite:EMBEDDING_LOOKUP": embedding_lookup},
        cases=_gather_cases,
        dtypes=_NAMES,
        numerics=in_both(_CELL),
    ),
    OpDef(
        name="gather_nd",
        infer=_nd_infer,
        reference=_nd_reference,
        lower=_nd_lower,
        imports={"tflite:GATHER_ND": _nd_import},
        cases=_nd_cases,
        dtypes=_NAMES,
        numerics=in_both(_CELL),
    ),
    OpDef(
        name="one_hot",
        infer=_hot_infer,
        reference=_hot_reference,
        lower=_hot_lower,
        imports={"tflite:ONE_HOT": _hot_import},
        cases=_hot_cases,
        dtypes=_NAMES,
        numerics={"litert": _CELL},
    ),
    OpDef(
        name="reverse_sequence",
        infer=_sequence_infer,
        reference=_sequence_reference,
        lower=_sequence_lower,
        imports={"tflite:REVERSE_SEQUENCE": _sequence_import},
        cases=_sequence_cases,
        dtypes=_NAMES,
        numerics={"litert": _CELL},
    ),
)
