"""unique_rows: the different rows of x [n, m], each once.

Outputs of int32: the index of the first row of each kind, the number of the kind of
each row, the number of rows of each kind (all [n], with zeros after the kinds), and the
number of kinds. Kinds are in ascending order of their elements, the first one first, or
in the order of x if not `ascending`. Rows with NaN are not defined. Semantics: ONNX's
Unique.
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import BOOL, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.values import UniqueAttrs
from firmwright.ir.tir.builder import (
    INDEX,
    ArithExpr,
    Register,
    binary_expr,
    maximum,
    minimum,
    select,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef
from firmwright.ops.strided_copy import lower_fill


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x = call.input(0)
    if len(x.shape) != 2 or x.dtype == BOOL:
        raise NotSupportedError(f"rows {list(x.shape)} of {x.dtype.name}")
    line = TensorType(x.shape[:1], INT32)
    return line, line, line, TensorType((), INT32)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    rows = [tuple(row) for row in arrays[0].tolist()]
    kinds = list(dict.fromkeys(rows))
    if call.attributes(UniqueAttrs).ascending:
        kinds.sort()
    first, inverse, counts = np.zeros((3, len(rows)), np.int32)
    for number, kind in enumerate(kinds):
        first[number] = rows.index(kind)
        counts[number] = rows.count(kind)
    inverse[:] = [kinds.index(row) for row in rows]
    return first, inverse, counts, np.array(len(kinds), np.int32)


def _lower_order(
    b: Kernel, x: tir.Buffer, row: ArithExpr, other: ArithExpr
) -> Register:
    """Emit -1, 0 or 1: `row` comes before `other`, is equal, or comes after it."""
    order = b.register("order", INT32, 0)
    with (
        b.for_("c", x.shape[1]) as c,
        b.if_(binary_expr("eq", order.value, 0)),
    ):
        mine = b.let("mine", b.load(x, [row, c]))
        theirs = b.let("theirs", b.load(x, [other, c]))
        after = select(mine > theirs, 1, 0).cast(INT32)
        order.set(select(mine < theirs, -1, after))
    return order


def _lower_kind(
    b: Kernel, x: tir.Buffer, row: ArithExpr, kinds: Register
) -> tuple[Register, Register]:
    """Emit the kind of a row, -1 for a new one, and the number of kinds before it."""
    first, size = b.outputs[0], x.shape[0]
    match = b.register("match", INT32, -1)
    before = b.register("before", INT32, 0)
    end = b.let("end", minimum(maximum(kinds.value, 0), size).cast(INDEX))
    with b.for_("k", end) as k:
        stored = minimum(maximum(b.load(first, [k]), 0), size - 1)
        order = _lower_order(b, x, b.let("kind_row", stored.cast(INDEX)), row)
        with b.if_(binary_expr("eq", order.value, 0)):
            match.set(k.cast(INT32))
        with b.if_(order.value < 0):
            before.add(1)
    return match, before


def _lower_insertion(
    b: Kernel, row: ArithExpr, place: ArithExpr, end: Register
) -> None:
    """Emit the insertion of a first row; those from `place` on move one further."""
    first = b.outputs[0]
    size = first.shape[0]
    with b.for_("s", size - 1) as s:
        k = (size - 1) - s
        last = b.let("at", k.cast(INT32))
        with b.if_(last > place), b.if_(last <= end.value):
            b.store(first, [k], b.load(first, [k - 1]))
    slot = minimum(maximum(place, 0), size - 1).cast(INDEX)
    b.store(first, [b.let("slot", slot)], row.cast(INT32))
    end.add(1)


def lower(call: OpCall, b: Kernel) -> None:
    x, (first, inverse, counts, number) = b.input(0), b.outputs
    size = x.shape[0]
    lower_fill(b, first, 0)
    lower_fill(b, counts, 0)
    kinds = b.register("kinds", INT32, 0)
    with b.for_("i", size) as i:
        match, before = _lower_kind(b, x, i, kinds)
        with b.if_(match.value < 0):
            is_sorted = call.attributes(UniqueAttrs).ascending
            place = b.let("place", before.value if is_sorted else kinds.value)
            _lower_insertion(b, i, place, kinds)
    with b.for_("j", size) as j:
        match, _ = _lower_kind(b, x, j, kinds)
        limited = minimum(maximum(match.value, 0), size - 1)
        kind = b.let("kind", limited.cast(INDEX))
        b.store(inverse, [j], match.value)
        b.store(counts, [kind], b.load(counts, [kind]) + 1)
    b.store(number, [], kinds.value)


OPDEF = OpDef("unique_rows", infer, reference, lower)
