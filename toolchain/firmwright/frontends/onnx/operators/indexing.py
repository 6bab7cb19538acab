"""Gather, scatter and ordering operators: static index lists if constant, else indexed reads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT64
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.onnx.call_emitter import ConstantValue, OnnxValue, shape_of
from firmwright.frontends.onnx.node_context import Importer, NodeContext
from firmwright.ir.core import Attr
from firmwright.ir.graph.nodes import TensorType


def _gather(c: NodeContext) -> OnnxValue:
    axis, shape, places = c.axis(0), c.shape(0), c.input(1)
    if not isinstance(places, ConstantValue):
        return c.emit.call("dynamic_gather", [c.input(0), places], {"mode": "along", "axis": axis})
    size = shape[axis]
    indices = tuple(int(n) + size * (n < 0) for n in places.array.reshape(-1))
    if not all(0 <= index < size for index in indices):
        raise NotSupportedError("indices outside of the input")
    run = range(indices[0], indices[0] + len(indices))
    if indices == tuple(run):
        # Consecutive indices are a slice, which may be a view.
        begin, counts = [0] * len(shape), list(shape)
        begin[axis], counts[axis] = run.start, len(run)
        part = c.emit.slice(c.input(0), begin, counts)
        return c.emit.reshape(part, (*shape[:axis], *shape_of(places), *shape[axis + 1 :]))
    attrs: dict[str, Attr] = {"axis": axis, "indices": indices, "shape": shape_of(places)}
    return c.emit.call("gather", [c.input(0)], attrs)


def _gather_elements(c: NodeContext) -> OnnxValue:
    attrs: dict[str, Attr] = {"mode": "elements", "axis": c.axis(0)}
    return c.emit.call("dynamic_gather", [c.input(0), c.input(1)], attrs)


def _gather_nd(c: NodeContext) -> OnnxValue:
    attrs: dict[str, Attr] = {"mode": "slices", "batch_dims": int(c.attr("batch_dims", 0))}
    return c.emit.call("dynamic_gather", [c.input(0), c.input(1)], attrs)


def _scatter_elements(c: NodeContext) -> OnnxValue:
    attrs: dict[str, Attr] = {
        "mode": "elements", "axis": c.axis(0), "step": c.attr("reduction", "none"),
    }  # fmt: skip
    return c.emit.call("dynamic_scatter", [c.input(k) for k in range(3)], attrs)


def _scatter_nd(c: NodeContext) -> OnnxValue:
    attrs: dict[str, Attr] = {
        "mode": "slices", "batch_dims": 0, "step": c.attr("reduction", "none"),
    }  # fmt: skip
    return c.emit.call("dynamic_scatter", [c.input(k) for k in range(3)], attrs)


def _compress(c: NodeContext) -> OnnxValue:
    keep = c.array(1, "conditions").reshape(-1)
    flat = c.attr("axis") is None
    x = c.emit.reshape(c.input(0), (math.prod(c.shape(0)),)) if flat else c.input(0)
    axis = 0 if flat else c.axis()
    indices = tuple(int(n) for n in np.nonzero(keep)[0])
    if not indices:
        raise NotSupportedError("a tensor without elements")
    attrs: dict[str, Attr] = {"axis": axis, "indices": indices, "shape": (len(indices),)}
    return c.emit.call("gather", [x], attrs)


def _arg_min_max(least: bool, c: NodeContext) -> OnnxValue:
    axis, shape = c.axis(0), c.shape(0)
    attrs: dict[str, Attr] = {
        "axis": axis, "least": least, "last": bool(c.attr("select_last_index", 0)),
    }  # fmt: skip
    y = c.emit.call("arg_min_max", [c.input(0)], attrs, dtype=INT64)
    if not c.attr("keepdims", 1):
        return y
    return c.emit.reshape(y, (*shape[:axis], 1, *shape[axis + 1 :]))


def _top_k(c: NodeContext) -> Sequence[OnnxValue]:
    axis, shape = c.axis(-1), c.shape(0)
    k = int(c.array(1, "counts").reshape(-1)[0])
    attrs: dict[str, Attr] = {"axis": axis, "k": k, "least": not c.attr("largest", 1)}
    result_shape = (*shape[:axis], k, *shape[axis + 1 :])
    kinds = (TensorType(result_shape, c.dtype(0)), TensorType(result_shape, INT64))
    return c.emit.multi_result_call("top_k", [c.input(0)], attrs, kinds)


def _cumulative(step: str, c: NodeContext) -> OnnxValue:
    rank = len(c.shape(0))
    axis = int(c.array(1, "axes").reshape(-1)[0])
    if not -rank <= axis < rank:
        raise NotSupportedError(f"axis {axis} of {rank} dimensions")
    attrs: dict[str, Attr] = {
        "axis": axis % rank, "step": step, "exclusive": bool(c.attr("exclusive", 0)),
        "reverse": bool(c.attr("reverse", 0)),
    }  # fmt: skip
    return c.emit.call("cumulative", [c.input(0)], attrs)


def _tensor_scatter(c: NodeContext) -> OnnxValue:
    """Write new rows into a cache, from the index of each sample."""
    cache, update = c.input(0), c.input(1)
    shape, rows = shape_of(cache), shape_of(update)
    axis = c.axis(-2)
    length, new = shape[axis], rows[axis]
    steps = c.emit.const(np.arange(new, dtype=np.int64), "steps")
    count = shape[0]
    if c.has(2):
        start = c.emit.reshape(c.emit.cast(c.input(2), INT64), (count, 1))
    else:
        start = c.emit.const(np.zeros((count, 1), np.int64), "starts")
    circular = c.attr("mode", "linear") == "circular"
    formula = f"(a + b) % int64({length})" if circular else "a + b"
    places = c.emit.expression(formula, start, steps)
    line = [count, *(1,) * (len(shape) - 1)]
    line[axis] = new
    wide = c.emit.broadcast(c.emit.reshape(places, line), rows)
    attrs: dict[str, Attr] = {"mode": "elements", "axis": axis, "step": "none"}
    return c.emit.call("dynamic_scatter", [cache, wide, update], attrs)


IMPORTERS: Mapping[str, Importer] = {
    "ArgMax": partial(_arg_min_max, False),
    "ArgMin": partial(_arg_min_max, True),
    "Compress": _compress,
    "CumProd": partial(_cumulative, "mul"),
    "CumSum": partial(_cumulative, "add"),
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TensorScatter": _tensor_scatter,
    "TopK": _top_k,
}
