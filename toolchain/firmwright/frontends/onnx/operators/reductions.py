"""Reductions along axes, and the operators based on them: norms, softmax, normalizations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from firmwright.base.dtypes import BOOL, FLOAT32, INT32
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.onnx.call_emitter import (
    CallEmitter,
    ConstantValue,
    OnnxValue,
    dtype_of,
    shape_of,
)
from firmwright.frontends.onnx.node_context import Importer, NodeContext
from firmwright.frontends.onnx.operators.elementwise import float32_literal, require_float32
from firmwright.ir.core import Attr


def reduction_axes(c: NodeContext) -> tuple[int, ...] | None:
    """Return the axes to reduce, or None for no reduction."""
    rank = len(c.shape(0))
    axes: tuple[int, ...] = tuple(c.attr("axes") or ())
    if c.has(1):
        axes = c.ints(1, "axes")
    if not axes:
        return None if c.attr("noop_with_empty_axes", 0) else tuple(range(rank))
    if any(not -rank <= axis < rank for axis in axes):
        raise NotSupportedError(f"axes {list(axes)} of {rank} dimensions")
    return tuple(sorted({axis % rank for axis in axes}))


def emit_reduction(
    emit: CallEmitter,
    inputs: Sequence[OnnxValue],
    formula: str,
    step: str,
    axes: Sequence[int],
    keep: bool = True,
) -> OnnxValue:
    attrs: dict[str, Attr] = {
        "formula": formula, "step": step, "axes": tuple(axes), "keep_dims": keep,
    }  # fmt: skip
    return emit.call("reduction", inputs, attrs)


def _reduce(formula: str, step: str, last: str, c: NodeContext) -> OnnxValue:
    axes, x = reduction_axes(c), c.input(0)
    keep = bool(c.attr("keepdims", 1))
    if axes is None:
        # Nothing is reduced, but both formulas still apply to each element.
        return c.emit.expression(last, c.emit.expression(formula, x))
    y = emit_reduction(c.emit, [x], formula, step, axes, keep)
    return y if last == "a" else c.emit.expression(last, y)


# reduce_max starts from the least finite number, like TFLite's; ONNX starts from -inf.


def _reduce_min_max(step: str, c: NodeContext) -> OnnxValue:
    axes, keep = reduction_axes(c), bool(c.attr("keepdims", 1))
    if axes is None:
        return c.input(0)
    if dtype_of(c.input(0)) == BOOL:
        return emit_reduction(
            c.emit, [c.input(0)], "a", {"max": "or", "min": "and"}[step], axes, keep
        )
    return emit_reduction(c.emit, [c.input(0)], "a", step, axes, keep)


def _mean(c: NodeContext) -> OnnxValue:
    axes, keep = reduction_axes(c), bool(c.attr("keepdims", 1))
    if axes is None:
        return c.input(0)
    return emit_mean(c.emit, c.input(0), axes, keep)


def emit_mean(emit: CallEmitter, x: OnnxValue, axes: Sequence[int], keep: bool = True) -> OnnxValue:
    if dtype_of(x) == FLOAT32:
        attrs: dict[str, Attr] = {"axes": tuple(axes), "keep_dims": keep}
        return emit.call("mean", [x], attrs)
    count = math.prod(shape_of(x)[axis] for axis in axes)
    return emit.expression(f"a / {count}", emit_reduction(emit, [x], "a", "add", axes, keep))


def _log_sum_exp(c: NodeContext) -> OnnxValue:
    axes, x = reduction_axes(c), c.input(0)
    require_float32(c)
    if axes is None:
        return x
    highest = emit_reduction(c.emit, [x], "a", "max", axes)
    total = emit_reduction(c.emit, [x, highest], "exp(a - b)", "add", axes)
    y = c.emit.expression("log(a) + b", total, highest)
    return y if c.attr("keepdims", 1) else c.emit.reshape(y, _drop_axes(shape_of(y), axes))


def _drop_axes(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(n for axis, n in enumerate(shape) if axis not in axes)


def _softmax(c: NodeContext) -> OnnxValue:
    require_float32(c)
    axis, rank = c.axis(-1), len(c.shape(0))
    perm = [k for k in range(rank) if k != axis] + [axis]
    moved = c.emit.transpose(c.input(0), perm)
    y = c.emit.call("softmax", [moved], {"beta": 1.0})
    return c.emit.transpose(y, [perm.index(k) for k in range(rank)])


def _log_softmax(c: NodeContext) -> OnnxValue:
    require_float32(c)
    x, axis = c.input(0), c.axis(-1)
    highest = emit_reduction(c.emit, [x], "a", "max", (axis,))
    total = emit_reduction(c.emit, [x, highest], "exp(a - b)", "add", (axis,))
    return c.emit.expression("a - b - log(c)", x, highest, total)


def _hardmax(c: NodeContext) -> OnnxValue:
    require_float32(c)
    axis, shape = c.axis(-1), c.shape(0)
    attrs: dict[str, Attr] = {"axis": axis, "least": False, "last": False}
    place = c.emit.call("arg_min_max", [c.input(0)], attrs, dtype=INT32)
    line = [1] * len(shape)
    line[axis] = shape[axis]
    steps = c.emit.const(np.arange(shape[axis], dtype=np.int32).reshape(line), "places")
    wide = list(shape)
    wide[axis] = 1
    spread = c.emit.reshape(place, wide)
    return c.emit.expression("where(a == b, 1.0, 0.0)", spread, steps)


def _lp_normalization(c: NodeContext) -> OnnxValue:
    require_float32(c)
    axis, order = c.axis(-1), int(c.attr("p", 2))
    formula, root = ("abs(a)", "b") if order == 1 else ("a * a", "sqrt(b)")
    total = emit_reduction(c.emit, [c.input(0)], formula, "add", (axis,))
    return c.emit.expression(f"size = {root}; where(size == 0.0, 0.0, a / size)", c.input(0), total)


def _broadcast_channels(tensor: OnnxValue, rank: int, emit: CallEmitter) -> OnnxValue:
    """Make a vector of one value per channel broadcastable to [n, c, ...]."""
    return emit.reshape(tensor, (math.prod(shape_of(tensor)), *(1,) * (rank - 2)))


def _batch_normalization(c: NodeContext) -> OnnxValue:
    require_float32(c)
    if c.attr("training_mode", 0):
        raise NotSupportedError("normalization while training")
    x, rank = c.input(0), len(c.shape(0))
    vectors = [c.input(index) for index in range(1, 5)]
    epsilon = float(c.attr("epsilon", 1e-5))
    if rank > 1 and all(isinstance(item, ConstantValue) for item in vectors):
        scale, bias, middle, variance = (
            np.asarray(item.array, np.float64)
            for item in vectors
            if isinstance(item, ConstantValue)
        )
        factor = scale / np.sqrt(variance + epsilon)
        shift = bias - middle * factor
        return c.emit.expression(
            "a * b + c",
            x,
            _broadcast_channels(c.emit.const(factor.astype(np.float32), "factor"), rank, c.emit),
            _broadcast_channels(c.emit.const(shift.astype(np.float32), "shift"), rank, c.emit),
        )
    spread = [_broadcast_channels(item, max(rank, 2), c.emit) for item in vectors]
    return c.emit.expression(f"(a - d) / sqrt(e + {float32_literal(epsilon)}) * b + c", x, *spread)


def emit_normalization(
    emit: CallEmitter, x: OnnxValue, axes: Sequence[int], epsilon: float
) -> tuple[OnnxValue, OnnxValue, OnnxValue]:
    """Emit (normalized x, mean, 1 / standard deviation) along axes."""
    middle = emit_mean(emit, x, axes)
    count = math.prod(shape_of(x)[axis] for axis in axes)
    total = emit_reduction(emit, [x, middle], "(a - b) * (a - b)", "add", axes)
    inverse = emit.expression(f"1.0 / sqrt(a / {float(count)} + {float32_literal(epsilon)})", total)
    return emit.expression("(a - b) * c", x, middle, inverse), middle, inverse


def _layer_normalization(c: NodeContext) -> Sequence[OnnxValue]:
    require_float32(c)
    if c.attr("stash_type", 1) != 1:
        raise NotSupportedError("a stash type other than float32")
    axes = tuple(range(c.axis(-1), len(c.shape(0))))
    y, middle, inverse = emit_normalization(
        c.emit, c.input(0), axes, float(c.attr("epsilon", 1e-5))
    )
    y = _scale_and_shift(c, y, c.optional(1), c.optional(2))
    return [y, middle, inverse][: len(c.outputs)]


def _scale_and_shift(
    c: NodeContext, y: OnnxValue, scale: OnnxValue | None, bias: OnnxValue | None
) -> OnnxValue:
    if scale is not None and bias is not None:
        return c.emit.expression("a * b + c", y, scale, bias)
    return y if scale is None else c.emit.expression("a * b", y, scale)


def _instance_normalization(c: NodeContext) -> OnnxValue:
    require_float32(c)
    rank = len(c.shape(0))
    y, _, _ = emit_normalization(
        c.emit, c.input(0), tuple(range(2, rank)), float(c.attr("epsilon", 1e-5))
    )
    return _scale_and_shift(c, y, *(_broadcast_channels(c.input(k), rank, c.emit) for k in (1, 2)))


def _group_normalization(c: NodeContext) -> OnnxValue:
    require_float32(c)
    shape, groups = c.shape(0), int(c.attr("num_groups"))
    if shape[1] % groups:
        raise NotSupportedError(f"{groups} groups of {shape[1]} channels")
    inner = (shape[0], groups, math.prod(shape[1:]) // groups)
    rows = c.emit.reshape(c.input(0), inner)
    y, _, _ = emit_normalization(c.emit, rows, (2,), float(c.attr("epsilon", 1e-5)))
    scale, bias = c.input(1), c.input(2)
    if c.opset < 21:
        # One value per group, not per channel.
        scale, bias = (
            c.emit.reshape(
                c.emit.broadcast(c.emit.reshape(item, (groups, 1)), (groups, shape[1] // groups)),
                (shape[1],),
            )
            for item in (scale, bias)
        )
    wide = c.emit.reshape(y, shape)
    return _scale_and_shift(
        c, wide, *(_broadcast_channels(item, len(shape), c.emit) for item in (scale, bias))
    )


def _rms_normalization(c: NodeContext) -> OnnxValue:
    require_float32(c)
    x, axes = c.input(0), tuple(range(c.axis(-1), len(c.shape(0))))
    count = math.prod(c.shape(0)[axis] for axis in axes)
    total = emit_reduction(c.emit, [x], "a * a", "add", axes)
    epsilon = float32_literal(c.attr("epsilon", 1e-5))
    return c.emit.expression(f"a / sqrt(b / {float(count)} + {epsilon}) * c", x, total, c.input(1))


def _mean_variance_normalization(c: NodeContext) -> OnnxValue:
    require_float32(c)
    axes = tuple(axis % len(c.shape(0)) for axis in c.attr("axes", (0, 2, 3)))
    x = c.input(0)
    middle = emit_mean(c.emit, x, axes)
    count = math.prod(c.shape(0)[axis] for axis in axes)
    total = emit_reduction(c.emit, [x, middle], "(a - b) * (a - b)", "add", axes)
    return c.emit.expression(f"(a - b) / (sqrt(c / {float(count)}) + 1e-9)", x, middle, total)


IMPORTERS: Mapping[str, Importer] = {
    "BatchNormalization": _batch_normalization,
    "GroupNormalization": _group_normalization,
    "Hardmax": _hardmax,
    "InstanceNormalization": _instance_normalization,
    "LayerNormalization": _layer_normalization,
    "LogSoftmax": _log_softmax,
    "LpNormalization": _lp_normalization,
    "MeanVarianceNormalization": _mean_variance_normalization,
    "RMSNormalization": _rms_normalization,
    "ReduceL1": partial(_reduce, "abs(a)", "add", "a"),
    "ReduceL2": partial(_reduce, "a * a", "add", "sqrt(a)"),
    "ReduceLogSum": partial(_reduce, "a", "add", "log(a)"),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": partial(_reduce_min_max, "max"),
    "ReduceMean": _mean,
    "ReduceMin": partial(_reduce_min_max, "min"),
    "ReduceProd": partial(_reduce, "a", "mul", "a"),
    "ReduceSum": partial(_reduce, "a", "add", "a"),
    "ReduceSumSquare": partial(_reduce, "a * a", "add", "a"),
    "Softmax": _softmax,
}
