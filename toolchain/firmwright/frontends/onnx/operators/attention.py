"""Attention and rotary embeddings, of the ONNX standard and of ONNX Runtime."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Quantization
from firmwright.frontends.onnx.node_context import (
    CallEmitter,
    ConstantValue,
    Importer,
    NodeContext,
    OnnxValue,
)
from firmwright.frontends.onnx.operators.elementwise import require_float32
from firmwright.ir.graph.attributes.layers import AttentionAttrs
from firmwright.ir.graph.attributes.values import ExpressionAttrs

_DEQUANTIZED = (
    ExpressionAttrs(formula="float32(int32(a) - int32(b)) * c"),
    ExpressionAttrs(formula="float32(a) * b"),
)


@dataclass(frozen=True, slots=True)
class Heads:
    """Query, key and value as [batch, heads, length, size]."""

    query: OnnxValue
    key: OnnxValue
    value: OnnxValue


def emit_attention(
    emit: CallEmitter,
    h: Heads,
    *,
    scale: float,
    causal: bool,
    offset: int,
    keys_in_use: OnnxValue | None = None,
) -> OnnxValue:
    """Emit attention without a mask; the result is [batch, length, heads * size]."""
    batch, heads, length, size = h.query.shape
    query = emit.reshape(
        emit.transpose(h.query, (0, 2, 1, 3)), (batch, length, heads * size)
    )
    return emit.call(
        "attention",
        query,
        h.key,
        h.value,
        keys_in_use,
        attrs=AttentionAttrs(
            heads=heads,
            kv_heads=h.key.shape[1],
            scale=scale,
            causal=causal,
            offset=offset,
            heads_first=True,
        ),
    )


def _attention(c: NodeContext) -> Sequence[OnnxValue]:
    """Emit attention without a mask; masks, windows, limited or output scores are
    inlined.
    """
    is_windowed = any(
        c.attr(f"{side}_window_size", -1) >= 0 for side in ("left", "right")
    )
    emit, is_flat, past = c.emit, c.rank == 3, [c.optional(4), c.optional(5)]
    inlined = (
        c.has(3)
        or c.attr("softcap", 0.0)
        or any(c.outputs[3:])
        or c.dtype(0) != FLOAT32
    )
    if inlined or is_windowed or (is_flat and any(past)):
        return ()
    heads = int(c.attr("q_num_heads")) if is_flat else c.shape(0)[1]
    size = c.shape(0)[-1] // heads if is_flat else c.shape(0)[-1]
    scale, causal = (
        float(c.attr("scale") or 1 / math.sqrt(size)),
        bool(c.attr("is_causal", 0)),
    )
    offset = past[0].shape[2] if past[0] else 0
    if is_flat:
        key, value = (_integer_source(emit, c.input(k)) for k in (1, 2))
        y = emit.call(
            "attention",
            c.input(0),
            key,
            value,
            c.optional(6),
            attrs=AttentionAttrs(
                heads=heads,
                kv_heads=int(c.attr("kv_num_heads")),
                scale=scale,
                causal=causal,
                offset=offset,
                heads_first=False,
            ),
        )
    else:
        parts = (
            [x for x in (before, c.input(k)) if x] for k, before in enumerate(past, 1)
        )
        key, value = (emit.concat(x, 2) for x in parts)
        h = Heads(c.input(0), key, value)
        y = emit_attention(
            emit,
            h,
            scale=scale,
            causal=causal,
            offset=offset,
            keys_in_use=c.optional(6),
        )
        y = emit.reshape(y, (*y.shape[:2], heads, value.shape[3]))
        y = emit.transpose(y, (0, 2, 1, 3))
    return [y, key, value][: len(c.outputs)]


def _integer_source(emit: CallEmitter, x: OnnxValue) -> OnnxValue:
    """Return the int8 tensor with its quantization if a DequantizeLinear has computed
    x.
    """
    call = next((item for item in reversed(emit.calls) if x in item.outputs), None)
    if call is None or call.attrs not in _DEQUANTIZED:
        return x
    source, *operands = call.inputs
    tables = [
        emit.constants.get(v.constant or "") if v is not None else None
        for v in operands
    ]
    arrays = [table.array().reshape(-1) for table in tables if table is not None]
    if source is None or source.type.dtype != INT8 or len(arrays) != len(tables):
        return x
    scales = arrays[-1]
    points = np.broadcast_to(arrays[0] if len(arrays) > 1 else np.int8(0), scales.shape)
    axis = None if len(scales) == 1 else 2
    if axis and operands[-1] is not None and operands[-1].type.shape[-1] != len(scales):
        return x
    quantization = Quantization(
        tuple(map(float, scales)), tuple(map(int, points)), axis
    )
    return emit.call(
        "reshape", source, result=replace(source.type, quantization=quantization)
    )


def _standard_rotary_embedding(c: NodeContext) -> OnnxValue:
    cosine, sine, positions = c.input(1), c.input(2), c.optional(3)
    return _rotate(
        c,
        *((x if positions is None else _rows(c, x, positions)) for x in (cosine, sine)),
    )


def _microsoft_rotary_embedding(c: NodeContext) -> OnnxValue:
    if c.attr("is_packed_batching", 0) or c.attr("scale", 1.0) != 1:
        raise NotSupportedError("packed batches or a scale")
    length, positions = c.shape(0)[-2], c.input(1)
    if positions.shape in ((), (1,)):
        line = c.emit.const(np.arange(length, dtype=np.int64), "places")
        positions = c.emit.expression("a + b", line, positions)
    return _rotate(c, *(_rows(c, c.input(k), positions) for k in (2, 3)))


def _rotate(c: NodeContext, cosine: OnnxValue, sine: OnnxValue) -> OnnxValue:
    require_float32(c)
    emit, x, half = c.emit, c.input(0), cosine.shape[-1]
    if c.rank == 3:
        batch, length, width = x.shape
        heads = int(c.attr("num_heads", 0)) or width // (2 * half)
        x = emit.reshape(x, (batch, length, heads, width // heads))
    else:
        x = emit.transpose(x, (0, 2, 1, 3))
        batch, length, heads, _ = x.shape
    table = (math.prod(cosine.shape) // (length * half), length, 1, half)
    cosine, sine = (emit.reshape(item, table) for item in (cosine, sine))
    # The pairs are adjacent channels or the halves of the rotated channels.
    pairs = (half, 2) if c.attr("interleaved", 0) else (2, half)
    axis = 4 if c.attr("interleaved", 0) else 3
    turned = emit.reshape(
        emit.slice_axis(x, 3, 0, 2 * half), (batch, length, heads, *pairs)
    )
    first, second = (emit.index_axis(turned, axis, k) for k in range(2))
    results = (
        emit.expression("a * c - b * d", first, second, cosine, sine),
        emit.expression("a * d + b * c", first, second, cosine, sine),
    )
    shape = list(turned.shape)
    shape[axis] = 1
    y = emit.concat([emit.reshape(item, shape) for item in results], axis)
    y = emit.reshape(y, (batch, length, heads, 2 * half))
    if (rest := x.shape[3] - 2 * half) > 0:
        y = emit.concat([y, emit.slice_axis(x, 3, 2 * half, rest)], 3)
    return (
        emit.reshape(y, c.shape(0)) if c.rank == 3 else emit.transpose(y, (0, 2, 1, 3))
    )


def _rows(c: NodeContext, table: OnnxValue, places: OnnxValue) -> OnnxValue:
    if isinstance(places, ConstantValue):
        return c.emit.gather(table, 0, places.array)
    return c.emit.gather_along(table, 0, places)


IMPORTERS: Mapping[str, Importer] = {
    "Attention": _attention,
    "RotaryEmbedding": _standard_rotary_embedding,
    "com.microsoft:RotaryEmbedding": _microsoft_rotary_embedding,
}
