"""Attention and rotary embeddings, of the ONNX standard and of ONNX Runtime."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, Array
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
    rows = emit.transpose(h.query, (0, 2, 1, 3))
    query = emit.reshape(rows, (batch, length, heads * size))
    attrs = AttentionAttrs(
        heads=heads,
        kv_heads=h.key.shape[1],
        scale=scale,
        causal=causal,
        offset=offset,
        heads_first=True,
    )
    return emit.call("attention", query, h.key, h.value, keys_in_use, attrs=attrs)


def _attention(c: NodeContext) -> Sequence[OnnxValue]:
    """Emit attention; masks, windows, limited or output scores are inlined."""
    windows = (c.attr("left_window_size", -1), c.attr("right_window_size", -1))
    is_windowed = max(windows) >= 0
    emit, is_flat = c.emit, c.rank == 3
    past_key, past_value = c.optional(4), c.optional(5)
    inlined = (
        c.has(3)
        or c.attr("softcap", 0.0)
        or any(c.outputs[3:])
        or c.dtype(0) != FLOAT32
    )
    has_past = past_key is not None or past_value is not None
    if inlined or is_windowed or (is_flat and has_past):
        return ()
    heads = int(c.attr("q_num_heads")) if is_flat else c.shape(0)[1]
    size = c.shape(0)[-1] // heads if is_flat else c.shape(0)[-1]
    scale = float(c.attr("scale") or 1 / math.sqrt(size))
    causal = bool(c.attr("is_causal", 0))
    offset = 0 if past_key is None else past_key.shape[2]
    if is_flat:
        key = _integer_source(emit, c.input(1))
        value = _integer_source(emit, c.input(2))
        attrs = AttentionAttrs(
            heads=heads,
            kv_heads=int(c.attr("kv_num_heads")),
            scale=scale,
            causal=causal,
            offset=offset,
            heads_first=False,
        )
        y = emit.call("attention", c.input(0), key, value, c.optional(6), attrs=attrs)
    else:
        key = _append(emit, past_key, c.input(1))
        value = _append(emit, past_value, c.input(2))
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


def _append(emit: CallEmitter, past: OnnxValue | None, x: OnnxValue) -> OnnxValue:
    return emit.concat([x] if past is None else [past, x], 2)


def _integer_source(emit: CallEmitter, x: OnnxValue) -> OnnxValue:
    """Return the int8 tensor with its quantization if a DequantizeLinear computed x."""
    call = next((item for item in reversed(emit.calls) if x in item.outputs), None)
    if call is None or call.attrs not in _DEQUANTIZED:
        return x
    source, *operands = call.inputs
    arrays: list[Array] = []
    for operand in operands:
        name = None if operand is None else operand.constant
        if name is None or name not in emit.constants:
            return x
        arrays.append(emit.constants[name].array().reshape(-1))
    if source is None or source.type.dtype != INT8:
        return x
    scales = arrays[-1]
    point: Array | np.int8 = arrays[0] if len(arrays) > 1 else np.int8(0)
    points = np.broadcast_to(point, scales.shape)
    axis = None if len(scales) == 1 else 2
    if axis and operands[-1] is not None and operands[-1].type.shape[-1] != len(scales):
        return x
    numbers = tuple(map(float, scales)), tuple(map(int, points))
    kind = replace(source.type, quantization=Quantization(*numbers, axis))
    return emit.call("reshape", source, result=kind)


def _standard_rotary_embedding(c: NodeContext) -> OnnxValue:
    cosine = c.input(1)
    sine = c.input(2)
    positions = c.optional(3)
    if positions is not None:
        cosine = _rows(c, cosine, positions)
        sine = _rows(c, sine, positions)
    return _rotate(c, cosine, sine)


def _microsoft_rotary_embedding(c: NodeContext) -> OnnxValue:
    if c.attr("is_packed_batching", 0) or c.attr("scale", 1.0) != 1:
        raise NotSupportedError("packed batches or a scale")
    length, positions = c.shape(0)[-2], c.input(1)
    if positions.shape in ((), (1,)):
        line = c.emit.const(np.arange(length, dtype=np.int64), "places")
        positions = c.emit.expression("a + b", line, positions)
    cosine = _rows(c, c.input(2), positions)
    return _rotate(c, cosine, _rows(c, c.input(3), positions))


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
    cosine = emit.reshape(cosine, table)
    sine = emit.reshape(sine, table)
    # The pairs are adjacent channels or the halves of the rotated channels.
    pairs = (half, 2) if c.attr("interleaved", 0) else (2, half)
    axis = 4 if c.attr("interleaved", 0) else 3
    rotated = emit.slice_axis(x, 3, 0, 2 * half)
    turned = emit.reshape(rotated, (batch, length, heads, *pairs))
    first = emit.index_axis(turned, axis, 0)
    second = emit.index_axis(turned, axis, 1)
    results = (
        emit.expression("a * c - b * d", first, second, cosine, sine),
        emit.expression("a * d + b * c", first, second, cosine, sine),
    )
    shape = list(turned.shape)
    shape[axis] = 1
    y = emit.concat([emit.reshape(item, shape) for item in results], axis)
    y = emit.reshape(y, (batch, length, heads, 2 * half))
    rest = x.shape[3] - 2 * half
    if rest > 0:
        y = emit.concat([y, emit.slice_axis(x, 3, 2 * half, rest)], 3)
    if c.rank == 3:
        return emit.reshape(y, c.shape(0))
    return emit.transpose(y, (0, 2, 1, 3))


def _rows(c: NodeContext, table: OnnxValue, places: OnnxValue) -> OnnxValue:
    if isinstance(places, ConstantValue):
        return c.emit.gather(table, 0, places.array)
    return c.emit.gather_along(table, 0, places)


IMPORTERS: Mapping[str, Importer] = {
    "Attention": _attention,
    "RotaryEmbedding": _standard_rotary_embedding,
    "com.microsoft:RotaryEmbedding": _microsoft_rotary_embedding,
}
