"""TfIdfVectorizer: counts of the n-grams of a pool in sequences of integers.

Each gap between the items of an n-gram, up to `max_skip_count` items, counts windows of
its own; single items have none. Semantics: ONNX Runtime.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from firmwright.base.dtypes import FLOAT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.resource_limits import check_result_bytes
from firmwright.frontends.onnx.node_context import Importer, NodeContext, OnnxValue
from firmwright.ir.graph.attributes.movement import BroadcastAttrs
from firmwright.ops.expression_language import INPUT_NAMES

_LENGTH_MAX = len(INPUT_NAMES) // 2
_MODES = ("TF", "IDF", "TFIDF")


def _pools(c: NodeContext) -> dict[int, Array]:
    """Return the n-grams [count, n] of each length n."""
    pool = np.array(c.attr("pool_int64s") or (), np.int64)
    starts = [*c.attr("ngram_counts"), len(pool)]
    if starts[0] != 0 or starts != sorted(starts):
        raise NotSupportedError(f"n-grams that start at {starts[:-1]} of {len(pool)}")
    pools: dict[int, Array] = {}
    for length, (first, last) in enumerate(pairwise(starts), start=1):
        if (last - first) % length:
            raise NotSupportedError(f"{last - first} items of {length}-grams")
        pools[length] = pool[first:last].reshape(-1, length)
    return pools


def _count(
    c: NodeContext, sequences: OnnxValue, grams: Array, gaps: Sequence[int]
) -> OnnxValue:
    """Emit how often n-grams [count, n] occur in the sequences [samples, items]."""
    emit, (samples, items) = c.emit, sequences.shape
    length = grams.shape[1]
    kind = sequences.type.dtype
    names = INPUT_NAMES[:length], INPUT_NAMES[length:]
    equal = " & ".join(f"({a} == {b})" for a, b in zip(*names, strict=False))
    if grams.min() < kind.min or grams.max() > kind.max:
        raise NotSupportedError(f"n-grams of items that {kind.name} does not have")
    pools: list[OnnxValue] = []
    for column in grams.T.astype(kind.np):
        pools.append(emit.const(column.reshape(1, 1, -1), "pool"))
    total: OnnxValue | None = None
    for gap in gaps:
        windows = items - gap * (length - 1)
        if windows < 1:
            break
        parts: list[OnnxValue] = []
        for position in range(length):
            part = emit.slice_axis(sequences, 1, position * gap, windows)
            parts.append(emit.reshape(part, (samples, windows, 1)))
        operands = (*parts, *pools)
        matches = emit.expression(f"where({equal}, 1.0, 0.0)", *operands)
        counts = emit.reduction("a", "add", (1,), matches, keep=False)
        total = counts if total is None else emit.expression("a + b", total, counts)
    if total is None:
        return emit.const(np.zeros((samples, len(grams)), np.float32), "none")
    return total


def _places(c: NodeContext, grams: int) -> Array:
    """Return the column of each n-gram; NotSupportedError if they are not distinct."""
    places = np.array(c.attr("ngram_indexes"), np.int64)
    if len(places) != grams or not grams or places.min() < 0:
        raise NotSupportedError(f"{len(places)} columns of {grams} n-grams")
    if len(np.unique(places)) < grams:
        raise NotSupportedError("several n-grams of one result")
    return places


def _lengths(c: NodeContext) -> range:
    least, most = int(c.attr("min_gram_length")), int(c.attr("max_gram_length"))
    if not 1 <= least <= most <= _LENGTH_MAX:
        raise NotSupportedError(f"n-grams of {least} to {most} items")
    return range(least, most + 1)


def _vectorize(c: NodeContext) -> OnnxValue:
    if c.dtype(0).is_float or c.attr("pool_strings"):
        raise NotSupportedError("n-grams of texts")
    emit, shape, mode = c.emit, c.shape(0), c.attr("mode")
    lengths, pools, skipped = _lengths(c), _pools(c), int(c.attr("max_skip_count"))
    if not shape or mode not in _MODES or skipped < 0:
        raise NotSupportedError(f"{mode} of {list(shape)}, {skipped} items skipped")
    samples = shape[0] if len(shape) > 1 else 1
    sequences = emit.reshape(c.input(0), (samples, shape[-1]))
    places = _places(c, sum(map(len, pools.values())))
    columns, first = int(places.max()) + 1, 0
    check_result_bytes(samples * columns * FLOAT32.size_bytes)
    counts: list[OnnxValue] = []
    sources = np.full(columns, -1)
    used = 0
    for length, grams in pools.items():
        own = places[first : first + len(grams)]
        first += len(grams)
        if length not in lengths or not len(grams):
            continue
        gaps = range(1, 2 if length == 1 else skipped + 2)
        counts.append(_count(c, sequences, grams, gaps))
        sources[own] = np.arange(used, used + len(grams))
        used += len(grams)
    # Columns of n-grams that are not counted are those of a zero at the end.
    zero = emit.const(np.zeros((1, 1), np.float32), "zero")
    zeros = emit.call("broadcast_to", zero, attrs=BroadcastAttrs(shape=(samples, 1)))
    if (sources < 0).any():
        counts.append(zeros)
        sources[sources < 0] = used
    y = emit.gather(emit.concat(counts, 1), 1, sources)
    if mode != "TF":
        y = _weighted(c, y, places)
    return emit.reshape(y, (*shape[:-1], columns))


def _weighted(c: NodeContext, counts: OnnxValue, places: Array) -> OnnxValue:
    """Emit the weights of n-grams that occur (IDF), or their products with counts.

    `places` are the columns of all n-grams of the pool.
    """
    weights = np.array(c.attr("weights") or (1.0,) * len(places), np.float32)
    if len(weights) != len(places):
        raise NotSupportedError(f"{len(weights)} weights of {len(places)} n-grams")
    line = np.zeros((1, counts.shape[1]), np.float32)
    line[0, places] = weights
    formula = "a * b" if c.attr("mode") == "TFIDF" else "where(a > 0.0, b, 0.0)"
    row = c.emit.const(line, "weights")
    return c.emit.expression(formula, counts, row)


IMPORTERS: Mapping[str, Importer] = {"TfIdfVectorizer": _vectorize}
