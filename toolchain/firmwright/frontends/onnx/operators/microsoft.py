"""ONNX Runtime's own operators (see its contrib operators) without standard form."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from firmwright.base.errors import NotSupportedError
from firmwright.frontends.onnx.node_context import Importer, NodeContext, OnnxValue
from firmwright.frontends.onnx.operators.attention import Heads, emit_attention
from firmwright.frontends.onnx.operators.elementwise import (
    float32_literal,
    require_float32,
)
from firmwright.frontends.onnx.operators.matmul import emit_matmul, import_matmul
from firmwright.frontends.onnx.operators.quantization import (
    import_dequantize,
    import_quantize,
)
from firmwright.frontends.onnx.operators.reductions import import_rms_normalization
from firmwright.ir.graph.attributes.values import SoftmaxAttrs

_HIDDEN = float32_literal(float(np.finfo(np.float32).min))
"""Logit of a key that a query must not use."""


def _fused_matmul(c: NodeContext) -> OnnxValue:
    if c.attr("transBatchA", 0) or c.attr("transBatchB", 0):
        raise NotSupportedError("transposed batches")
    a, b = c.input(0), c.input(1)
    if c.attr("transA", 0):
        a = _swap_last(c, a)
    if c.attr("transB", 0):
        b = _swap_last(c, b)
    y = import_matmul(replace(c, inputs=(a, b)))
    alpha = float(c.attr("alpha", 1.0))
    if alpha == 1:
        return y
    return c.emit.expression(f"a * {float32_literal(alpha)}", y)


def _swap_last(c: NodeContext, x: OnnxValue) -> OnnxValue:
    rank = len(x.shape)
    if rank < 2:
        return x
    return c.emit.transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def _attend(
    c: NodeContext, h: Heads, mask: OnnxValue | None, bias: OnnxValue | None
) -> OnnxValue:
    """Emit the softmax of scaled products times the values, and join the heads."""
    emit, (batch, heads, length, size) = c.emit, h.query.shape
    total = h.key.shape[2]
    factor = float(c.attr("scale", 0.0)) or 1 / math.sqrt(size)
    if mask is None and bias is None:
        is_causal = bool(c.attr("unidirectional", 0))
        return emit_attention(
            emit, h, scale=factor, causal=is_causal, offset=total - length
        )
    scale = float32_literal(factor)
    logits = emit_matmul(emit, h.query, _swap_last(c, h.key))
    logits = emit.expression(f"a * {scale}", logits)
    if bias is not None:
        logits = emit.expression("a + b", logits, bias)
    if mask is not None:
        hidden = float32_literal(float(c.attr("mask_filter_value", -10000.0)))
        formula = f"a + where(b > 0, 0.0, {hidden})"
        keys_in_use = _key_mask(c, mask, batch, length, total)
        logits = emit.expression(formula, logits, keys_in_use)
    if c.attr("unidirectional", 0):
        past = np.tri(length, total, total - length, dtype=np.int32)
        causal = emit.const(past, "causal")
        logits = emit.expression(f"where(b > 0, a, {_HIDDEN})", logits, causal)
    weights = emit.call("softmax", logits, attrs=SoftmaxAttrs(beta=1.0))
    y = emit.transpose(emit_matmul(emit, weights, h.value), (0, 2, 1, 3))
    return emit.reshape(y, (batch, length, heads * h.value.shape[3]))


def _key_mask(
    c: NodeContext, mask: OnnxValue, batch: int, length: int, total: int
) -> OnnxValue:
    """Return a mask that broadcasts to [batch, 1, length, total].

    It is positive where a key is used.
    """
    shape = mask.shape
    if shape == (batch, total):
        return c.emit.reshape(mask, (batch, 1, 1, total))
    if shape == (batch, length, total):
        return c.emit.reshape(mask, (batch, 1, length, total))
    if shape in ((batch,), (2 * batch,)):
        # The end of the keys in use and, optionally, their begin.
        line = np.arange(total, dtype=np.int32).reshape(1, 1, 1, total)
        places = c.emit.const(line, "places")
        limits: list[OnnxValue] = []
        for first in range(0, shape[0], batch):
            column = c.emit.slice_axis(mask, 0, first, batch)
            limits.append(c.emit.reshape(column, (batch, 1, 1, 1)))
        formula = "int32(a < b)" if len(limits) == 1 else "int32((a < b) & (a >= c))"
        return c.emit.expression(formula, places, *limits)
    raise NotSupportedError(f"a mask {list(shape)}")


def _split_heads(c: NodeContext, x: OnnxValue, heads: int) -> OnnxValue:
    """Return [batch, length, heads * size] as [batch, heads, length, size]."""
    batch, length, width = x.shape
    if heads < 1 or width % heads:
        raise NotSupportedError(f"{heads} heads of {width} channels")
    split = c.emit.reshape(x, (batch, length, heads, width // heads))
    return c.emit.transpose(split, (0, 2, 1, 3))


def _append(c: NodeContext, past: OnnxValue | None, x: OnnxValue) -> OnnxValue:
    return x if past is None else c.emit.concat([past, x], 2)


def _attention(c: NodeContext) -> Sequence[OnnxValue]:
    require_float32(c, 2)
    if c.has(6) or c.attr("do_rotary", 0) or c.attr("past_present_share_buffer", 0):
        raise NotSupportedError("a shared buffer of past keys, or rotary embeddings")
    heads, columns = int(c.attr("num_heads")), c.shape(1)[1]
    sizes = tuple(c.attr("qkv_hidden_sizes") or (columns // 3,) * 3)
    joined = import_matmul(replace(c, inputs=c.inputs[:2]))
    if c.has(2):
        joined = c.emit.expression("a + b", joined, c.input(2))
    firsts = (0, sizes[0], sizes[0] + sizes[1])
    parts: list[OnnxValue] = []
    for first, size in zip(firsts, sizes, strict=True):
        part = c.emit.slice_axis(joined, 2, first, size)
        parts.append(_split_heads(c, part, heads))
    query, key, value = parts
    past = c.optional(4)
    if past is not None:
        key = _append(c, c.emit.index_axis(past, 0, 0), key)
        value = _append(c, c.emit.index_axis(past, 0, 1), value)
    y = _attend(c, Heads(query, key, value), c.optional(3), c.optional(5))
    if len(c.outputs) < 2 or not c.outputs[1]:
        return [y]
    present = [c.emit.reshape(x, (1, *x.shape)) for x in (key, value)]
    return [y, c.emit.concat(present, 0)]


def _multi_head_attention(c: NodeContext) -> Sequence[OnnxValue]:
    require_float32(c)
    heads = int(c.attr("num_heads"))
    if c.has(8) or c.has(9):
        raise NotSupportedError("a shared buffer of past keys")
    if len(c.outputs) > 3 and c.outputs[3]:
        raise NotSupportedError("the products of queries and keys as an output")
    parts, offset = [], 0
    for x in _query_key_value(c):
        if len(x.shape) == 3 and c.has(3):
            count = x.shape[2]
            bias = c.emit.slice_axis(c.input(3), 0, offset, count)
            x = c.emit.expression("a + b", x, bias)
            offset += count
        parts.append(_split_heads(c, x, heads) if len(x.shape) == 3 else x)
    query, key, value = parts
    key = _append(c, c.optional(6), key)
    value = _append(c, c.optional(7), value)
    y = _attend(c, Heads(query, key, value), c.optional(4), c.optional(5))
    return [y, key, value][: len(c.outputs)]


def _query_key_value(c: NodeContext) -> list[OnnxValue]:
    """Return query, key and value as [batch, length, width], unchanged if split."""
    if not c.has(1):
        # Packed: [batch, length, heads, 3, size].
        return _unpacked(c, c.input(0), 3)
    if not c.has(2):
        # Key and value packed: [batch, length, heads, 2, size].
        return [c.input(0), *_unpacked(c, c.input(1), 2)]
    if len(c.shape(1)) == 4 and c.has(3):
        raise NotSupportedError("a bias with keys that are split into heads")
    return [c.input(k) for k in range(3)]


def _unpacked(c: NodeContext, x: OnnxValue, count: int) -> list[OnnxValue]:
    """Return the `count` parts along axis 3, each as [batch, length, width]."""
    batch, length, heads, _, size = x.shape
    parts: list[OnnxValue] = []
    for k in range(count):
        part = c.emit.index_axis(x, 3, k)
        parts.append(c.emit.reshape(part, (batch, length, heads * size)))
    return parts


IMPORTERS: Mapping[str, Importer] = {
    "SimplifiedLayerNormalization": import_rms_normalization,
    "com.microsoft:Attention": _attention,
    "com.microsoft:DequantizeLinear": import_dequantize,
    "com.microsoft:FusedMatMul": _fused_matmul,
    "com.microsoft:MultiHeadAttention": _multi_head_attention,
    "com.microsoft:QuantizeLinear": import_quantize,
    "com.microsoft:TransposeMatMul": _fused_matmul,
}
