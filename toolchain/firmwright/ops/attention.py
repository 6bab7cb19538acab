"""attention: y = softmax(scale q k^T) v for each head, over the keys in use.

Inputs: query [batch, rows, heads * size], key [batch, keys, kv_heads * size] and value
[batch, keys, kv_heads * value size], float32 or quantized int8 (per tensor or channel),
and optionally the number of keys in use in each batch (default: all). Groups of heads
share keys and values. With `heads_first`, key and value are [batch, kv_heads, keys,
size].

With `causal`, row r uses the keys up to r + `offset`, or of the keys in use all but the
last rows - 1 - r. A row without keys is 0.

Semantics: ONNX's Attention. Scores and sums are float32; the order of additions is not
defined.
"""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, INT64, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Quantization
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.layers import AttentionAttrs
from firmwright.ir.tir.builder import (
    INDEX,
    ArithExpr,
    call_intrinsic,
    immediate,
    maximum,
    minimum,
)
from firmwright.ops.kernel import Kernel, Nest
from firmwright.ops.opdef import OpDef

_QUERY, _KEY, _VALUE, _LENGTH = range(4)


def infer(call: OpCall) -> tuple[TensorType, ...]:
    attrs = call.attributes(AttentionAttrs)
    query = call.input(_QUERY)
    heads = attrs.heads
    shared = attrs.kv_heads
    key = _cache_shape(call, _KEY)
    value = _cache_shape(call, _VALUE)
    if (
        query.dtype != FLOAT32
        or len(query.shape) != 3
        or heads < 1
        or query.shape[2] % heads
    ):
        raise NotSupportedError(f"queries {list(query.shape)} of {heads} heads")
    size = query.shape[2] // heads
    if (
        heads % shared
        or key != (query.shape[0], key[1], shared, size)
        or value[:3] != key[:3]
    ):
        raise NotSupportedError(
            f"keys {list(key)} and values {list(value)} for {heads} heads"
        )
    if call.has_input(_LENGTH) and (
        call.input(_LENGTH).dtype not in (INT32, INT64)
        or call.input(_LENGTH).shape != query.shape[:1]
    ):
        raise NotSupportedError("more than one number of keys for each batch")
    return (TensorType((*query.shape[:2], heads * value[3]), FLOAT32),)


def _cache_shape(call: OpCall, index: int) -> tuple[int, int, int, int]:
    """Return keys or values as [batch, keys, heads, size]."""
    attrs = call.attributes(AttentionAttrs)
    shape = call.input(index).shape
    heads = attrs.kv_heads
    kind = call.input(index)
    if kind.dtype not in (FLOAT32, INT8) or (
        kind.dtype == INT8 and kind.quantization is None
    ):
        raise NotSupportedError(f"keys or values of {kind.dtype.name}")
    if attrs.heads_first:
        if len(shape) != 4 or shape[1] != heads or kind.dtype != FLOAT32:
            raise NotSupportedError(f"keys or values {list(shape)} of {heads} heads")
        return (shape[0], shape[2], heads, shape[3])
    if len(shape) != 3 or heads < 1 or shape[2] % heads:
        raise NotSupportedError(f"keys or values {list(shape)} of {heads} heads")
    return (shape[0], shape[1], heads, shape[2] // heads)


def _scaling(call: OpCall, index: int) -> tuple[Array, Array] | None:
    """Return scales and zero points [heads, size] of int8 keys or values."""
    _, _, heads, size = _cache_shape(call, index)
    quant: Quantization | None = call.input(index).quantization
    if call.input(index).dtype == FLOAT32 or quant is None:
        return None
    scales = np.broadcast_to(np.array(quant.scales, np.float32), heads * size)
    points = np.broadcast_to(np.array(quant.zero_points, np.float32), heads * size)
    return scales.reshape(heads, size), points.reshape(heads, size)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(AttentionAttrs)
    heads, scale = attrs.heads, attrs.scale
    parts = []
    for index in (_KEY, _VALUE):
        reals = arrays[index].astype(np.float64)
        if attrs.heads_first:
            reals = reals.transpose(0, 2, 1, 3)
        reals = reals.reshape(_cache_shape(call, index))
        if (scaling := _scaling(call, index)) is not None:
            reals = (reals - scaling[1]) * scaling[0]
        parts.append(np.repeat(reals, heads // attrs.kv_heads, axis=2))
    query = arrays[_QUERY].astype(np.float64)
    query = query.reshape(*query.shape[:2], heads, -1)
    scores = np.einsum("brhd,bkhd->bhrk", query, parts[0]) * scale
    is_used = np.arange(scores.shape[3]) < _keys_of_rows(call, arrays)
    scores = np.where(is_used, scores, -np.inf)
    highest = scores.max(3, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(highest), highest, 0))
    weights /= np.maximum(weights.sum(3, keepdims=True), 1)
    y = np.einsum("bhrk,bkhd->brhd", weights, parts[1])
    return (y.reshape(call.output.shape).astype(np.float32),)


def _keys_of_rows(call: OpCall, arrays: Sequence[Array]) -> Array:
    """Return the number of keys in use, broadcastable to [batch, heads, rows, 1]."""
    attrs = call.attributes(AttentionAttrs)
    rows = np.arange(call.output.shape[1]).reshape(1, 1, -1, 1)
    keys = _cache_shape(call, _KEY)[1]
    counts = np.array([keys])
    end = rows + attrs.offset + 1
    if call.has_input(_LENGTH):
        counts = arrays[_LENGTH].astype(np.int64)
        end = counts.reshape(-1, 1, 1, 1) - rows[:, :, ::-1]
    counts = np.clip(counts, 0, keys).reshape(-1, 1, 1, 1)
    return np.asarray(np.minimum(counts, end) if attrs.causal else counts)


# ---- loops ---------------------------------------------------------------------------

# A tile of heads that share keys and values is computed at a time, channel block by
# channel block: scores of all keys, their exponentials in place, then the weighted
# values. The query is scaled once, by `scale` and the scales of the keys. A key's zero
# point adds the same to all scores of a head, which softmax ignores.

_REGISTERS = 16
"""Sums, or elements of the query, in registers."""
_BLOCK = 8
_LOG2_E = math.log2(math.e)


@dataclass(frozen=True, slots=True)
class _Loops:
    """Loops over tiles of `heads` heads."""

    call: OpCall
    b: Kernel
    heads: int

    def block(self, index: int) -> int:
        return _greatest_divisor(_cache_shape(self.call, index)[3], _BLOCK)

    def cache(self, index: int) -> tir.Buffer:
        """View keys or values as [batch, keys, heads, size]."""
        shape = _, keys, heads, size = _cache_shape(self.call, index)
        first = self.call.attributes(AttentionAttrs).heads_first
        steps = (size, keys * size) if first else (heads * size, size)
        strides = (keys * heads * size, *steps, 1)
        return self.b.view("cache", self.b.input(index), 0, shape, strides=strides)

    def table(self, name: str, index: int, which: int) -> tir.Buffer | None:
        scaling = _scaling(self.call, index)
        if scaling is None:
            return None
        return self.b.constant(name, scaling[which], FLOAT32)


def _greatest_divisor(size: int, limit: int) -> int:
    """Return the greatest divisor of `size` up to `limit`."""
    divisor = min(limit, size)
    while size % divisor:
        divisor -= 1
    return divisor


@dataclass(frozen=True, slots=True)
class _HeadTile:
    """Indices of a tile: batch, row, first head, head of the cache, keys in use."""

    n: ArithExpr
    row: ArithExpr
    head: ArithExpr
    shared: ArithExpr
    used: ArithExpr


def lower(call: OpCall, b: Kernel) -> None:
    attrs = call.attributes(AttentionAttrs)
    heads = attrs.heads
    group = attrs.heads // attrs.kv_heads
    batch, keys, _, size = _cache_shape(call, _KEY)
    rows = call.output.shape[1]
    value_size = _cache_shape(call, _VALUE)[3]
    tile = _greatest_divisor(group, max(_REGISTERS // _BLOCK, 1))
    loops = _Loops(call, b, tile)
    key_scales = loops.table("key_scales", _KEY, 0)
    value_tables = [loops.table("scales", _VALUE, 0), loops.table("zeros", _VALUE, 1)]
    with Nest() as enter:
        query = b.view("query", b.input(_QUERY), 0, (batch, rows, heads, size))
        out = b.view("out", b.y, 0, (batch, rows, heads, value_size), access="w")
        key = loops.cache(_KEY)
        value = loops.cache(_VALUE)
        scores = b.allocate("scores", FLOAT32, (keys, tile))
        n = enter(b.for_("n", batch))
        row = enter(b.for_("row", rows))
        key_count = b.let("used", _keys_in_use(call, b, n, row).cast(INT32)).cast(INDEX)
        index = enter(b.for_("tile", heads // tile))
        first = b.let("first", index * tile)
        place = _HeadTile(n, row, first, index // (group // tile), key_count)
        highest = _score(loops, place, query, key, scores, key_scales)
        totals = _exponentials(loops, place, scores, highest)
        _add_values(loops, place, value, scores, out, totals, value_tables)


def _keys_in_use(call: OpCall, b: Kernel, n: ArithExpr, row: ArithExpr) -> ArithExpr:
    attrs = call.attributes(AttentionAttrs)
    keys = _cache_shape(call, _KEY)[1]
    rows = call.output.shape[1]
    count = ArithExpr(immediate(keys, INDEX))
    end = row + (attrs.offset + 1)
    if call.has_input(_LENGTH):
        count = minimum(b.load(b.input(_LENGTH), [n]).cast(INDEX), keys)
        end = count - (rows - 1) + row
    if attrs.causal:
        count = minimum(count, end)
    return maximum(count, 0)


def _score(
    loops: _Loops,
    tile: _HeadTile,
    query: tir.Buffer,
    key: tir.Buffer,
    scores: tir.Buffer,
    scales: tir.Buffer | None,
) -> tir.Buffer:
    """Store the scores as powers of two; return registers of their maxima."""
    attrs = loops.call.attributes(AttentionAttrs)
    b = loops.b
    block = loops.block(_KEY)
    size = key.shape[3]
    scale = _LOG2_E * attrs.scale
    highest = b.reg("highest", FLOAT32, loops.heads)
    for h in range(loops.heads):
        b.store(highest, [h], float(np.finfo(np.float32).min))
    for start in range(0, size, block):
        q = b.reg("q", FLOAT32, loops.heads * block)
        for h in range(loops.heads):
            for c in range(block):
                x = b.load(query, [tile.n, tile.row, tile.head + h, start + c]) * scale
                if scales is not None:
                    x = x * b.load(scales, [tile.shared, start + c])
                b.store(q, [h * block + c], x)
        with b.for_("t", tile.used) as t:
            k: list[ArithExpr] = []
            for c in range(block):
                x = b.load(key, [tile.n, t, tile.shared, start + c])
                k.append(b.let("k", x.cast(FLOAT32)))
            for h in range(loops.heads):
                terms = [b.load(q, [h * block + c]) * k[c] for c in range(block)]
                total = reduce(operator.add, terms)
                if start:
                    total = b.load(scores, [t, h]) + total
                score = b.let("score", total)
                b.store(scores, [t, h], score)
                if start + block == size:
                    b.store(highest, [h], maximum(b.load(highest, [h]), score))
    return highest


def _exponentials(
    loops: _Loops, tile: _HeadTile, scores: tir.Buffer, highest: tir.Buffer
) -> tir.Buffer:
    """Replace scores by exponentials below the maximum; return registers of sums."""
    b = loops.b
    totals = b.reg("total", FLOAT32, loops.heads)
    for h in range(loops.heads):
        b.store(totals, [h], 0.0)
    with b.for_("t", tile.used) as t:
        for h in range(loops.heads):
            below = b.load(scores, [t, h]) - b.load(highest, [h])
            power = b.let("power", call_intrinsic("exp2_below_f32", [below], FLOAT32))
            b.store(scores, [t, h], power)
            b.store(totals, [h], b.load(totals, [h]) + power)
    return totals


def _add_values(
    loops: _Loops,
    tile: _HeadTile,
    value: tir.Buffer,
    scores: tir.Buffer,
    out: tir.Buffer,
    totals: tir.Buffer,
    tables: Sequence[tir.Buffer | None],
) -> None:
    (scales, points), b, block = tables, loops.b, loops.block(_VALUE)
    for start in range(0, value.shape[3], block):
        sums = b.reg("sum", FLOAT32, loops.heads * block)
        for k in range(loops.heads * block):
            b.store(sums, [k], 0.0)
        with b.for_("t", tile.used) as t:
            weights: list[ArithExpr] = []
            for h in range(loops.heads):
                weights.append(b.let("weight", b.load(scores, [t, h])))
            for c in range(block):
                x = b.load(value, [tile.n, t, tile.shared, start + c])
                v = b.let("v", x.cast(FLOAT32))
                for h, weight in enumerate(weights):
                    at = [h * block + c]
                    b.store(sums, at, b.load(sums, at) + weight * v)
        for h in range(loops.heads):
            total = b.load(totals, [h])
            one = ArithExpr(immediate(1.0, FLOAT32))
            inverse = b.let("inverse", one / maximum(total, 1.0))
            for c in range(block):
                mean = b.load(sums, [h * block + c])
                if scales is not None and points is not None:
                    mean = mean - b.load(points, [tile.shared, start + c]) * total
                    mean = mean * b.load(scales, [tile.shared, start + c])
                place: list[ArithExpr | int]
                place = [tile.n, tile.row, tile.head + h, start + c]
                b.store(out, place, mean * inverse)


OPDEF = OpDef("attention", infer, reference, lower)
