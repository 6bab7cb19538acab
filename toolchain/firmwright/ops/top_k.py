"""top_k: the k greatest elements of every row, in falling order, and where they stood.

Attribute: `k`. Of equal elements the first one comes first. Stored values are compared as they are.
Each result is the greatest of those that come after the one before it: no scratch, no copy of the
row. Rows that hold a NaN give what nobody promises.
Source of the semantics: TFLite's TopKV2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, UINT8
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
from firmwright.ops.kernel import Kernel
from firmwright.ops.moves import LITERT, constant_ints, plain, present

_DTYPES = (INT8, UINT8, INT16, INT32, FLOAT32)


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, k = call.input(0), call.int_attr("k")
    if x.dtype not in _DTYPES or len(call.outputs) != 2 or call.output.dtype != x.dtype:
        raise NotSupportedError(f"the greatest of {x.dtype.name}")
    if call.outputs[1].dtype != INT32:
        raise NotSupportedError(f"indices as {call.outputs[1].dtype.name}")
    if not x.shape or not 1 <= k <= x.shape[-1]:
        raise NotSupportedError(f"the {k} greatest of {list(x.shape)}")
    shape = (*x.shape[:-1], k)
    return (TensorType(shape, x.dtype, call.output.quantization), TensorType(shape, INT32))


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    wide = arrays[0].astype(np.float64)
    places = np.argsort(-wide, axis=-1, kind="stable")[..., : call.int_attr("k")]
    return np.take_along_axis(arrays[0], places, -1), places.astype(np.int32)


def lower(call: OpCall, b: Kernel) -> None:
    x, k = call.input(0), call.int_attr("k")
    count = x.shape[-1]
    rows = x.elements // count
    values, places = b.outputs
    with (
        b.window("rows", b.input(0), 0, (rows, count)) as source,
        b.window("values", values, 0, (rows, k), access="w") as found,
        b.window("places", places, 0, (rows, k), access="w") as where,
        b.for_("row", rows) as row,
    ):
        last, last_at = b.reg("last", x.dtype), b.reg("last_at", INT32)
        best, best_at = b.reg("best", x.dtype), b.reg("best_at", INT32)
        b.store(last, [0], b.load(source, [row, 0]))
        b.store(last_at, [0], -1)
        with b.for_("j", k) as j:
            b.store(best, [0], b.load(source, [row, 0]))
            b.store(best_at, [0], -1)
            with (
                b.for_("i", count) as i,
                b.let("item", b.load(source, [row, i])) as item,
                b.let("at", i.cast(INT32)) as at,
                b.if_(_follows(item, at, b.load(last, [0]), b.load(last_at, [0]))),
                b.if_(_is_first_or_greater(item, b.load(best, [0]), b.load(best_at, [0]))),
            ):
                b.store(best, [0], item)
                b.store(best_at, [0], at)
            b.store(last, [0], b.load(best, [0]))
            b.store(last_at, [0], b.load(best_at, [0]))
            b.store(found, [row, j], b.load(best, [0]))
            b.store(where, [row, j], b.load(best_at, [0]))


def _follows(item: E, at: E, last: E, last_at: E) -> E:
    """Whether an element comes after the last one found; before any is, all do."""
    lesser = binary("or", item < last, logical_and(item.equal(last), at > last_at))
    return binary("or", last_at < 0, lesser)


def _is_first_or_greater(item: E, best: E, best_at: E) -> E:
    return binary("or", best_at < 0, item > best)


def from_tflite(context: ImportContext) -> Imported:
    present(context, 2)
    counts = constant_ints(context, 1, "a number of elements")
    if len(counts) != 1:
        raise NotSupportedError(f"{len(counts)} numbers of elements")
    return Imported("top_k", {"k": counts[0]}, (0,))


def cases() -> Iterator[Case]:
    for name, shape, k in (("three", (2, 9), 3), ("all", (2, 2, 5), 5), ("one", (11,), 1)):
        for dtype in ("int8", "int16", "int32", "float32"):
            if name != "three" and dtype not in ("int8", "float32"):
                continue
            y = (*shape[:-1], k)
            inputs = (plain(shape, dtype), CaseTensor((), "int32", data=np.array(k, np.int32)))
            outputs = (plain(y, dtype), CaseTensor(y, "int32"))
            yield Case(f"{name}_{dtype}", "TOPK_V2", inputs, outputs, {}, LITERT)


OPDEF = OpDef(
    name="top_k",
    infer=infer,
    reference=reference,
    lower=lower,
    imports={"tflite:TOPK_V2": from_tflite},
    cases=cases,
    dtypes=tuple(kind.name for kind in _DTYPES),
    numerics={"litert": NumericsCell(None, "exact", "TopContainer")},
    limits="constant k",
)
