"""hybrid_embedding_lookup: rows of an int8 table, by index, as floats: y[n] = scale * table[x[n]].

Inputs: indices [n] of int32 and the table, with one scale or one for each row.
Semantics: TFLite's hybrid EmbeddingLookup. Indices are clamped to the table.
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph import OpCall, OpDef, TensorType
from firmwright.ir.tir.builder import maximum, minimum
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import quantization_of


def infer(call: OpCall) -> tuple[TensorType, ...]:
    indices, table = call.input(0), call.input(1)
    if (indices.dtype, table.dtype) != (INT32, INT8) or len(indices.shape) != 1:
        raise NotSupportedError(f"an embedding of {table.dtype.name} by {indices.dtype.name}")
    if call.numerics == "tflm":
        raise NotSupportedError("a hybrid operator in the tflm profile")
    quant = quantization_of(table)
    if any(quant.zero_points) or quant.axis not in (None, 0):
        raise NotSupportedError("a table with a zero point, or with scales of another axis than 0")
    return (TensorType((*indices.shape, *table.shape[1:]), FLOAT32),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    indices = np.clip(arrays[0], 0, len(arrays[1]) - 1)
    rows = arrays[1][indices].astype(np.float32)
    scales = np.array(quantization_of(call.input(1)).scales, np.float32)
    own = scales[indices] if len(scales) > 1 else np.repeat(scales, len(indices))
    return (rows * own.reshape(-1, *[1] * (rows.ndim - 1)),)


def lower(call: OpCall, b: Kernel) -> None:
    count, entries = call.input(0).shape[0], call.input(1).shape[0]
    size = call.input(1).elements // entries
    scales = np.array(quantization_of(call.input(1)).scales)
    factors = b.constant("scales", scales, FLOAT32)
    table = b.view("table", b.input(1), 0, (entries, size))
    out = b.view("out", b.y, 0, (count, size), access="w")
    with b.for_("n", count) as n:
        index = b.let("index", minimum(maximum(b.load(b.input(0), [n]), 0), entries - 1))
        with b.for_("i", size) as i:
            scale = b.load(factors, [index if len(scales) > 1 else 0])
            b.store(out, [n, i], b.load(table, [index, i]).cast(FLOAT32) * scale)


OPDEF = OpDef("hybrid_embedding_lookup", infer, reference, lower)
