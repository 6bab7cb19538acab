"""Reductions along axes, and what is made of them: norms, softmaxes, normalisations.

Source of the semantics: the ONNX operator specification.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from firmwright.base.dtypes import BOOL, FLOAT32, INT32
from firmwright.frontends.onnx.context import Importer, NodeContext
from firmwright.frontends.onnx.emitter import Const, Emitter, Tensor, dtype_of, shape_of
from firmwright.frontends.onnx.operators.elementwise import number, only_floats
from firmwright.ir.core import Attr
from firmwright.ir.graph.opdef import NotSupportedError

# ---- reductions --------------------------------------------------------------------------------


def joined_axes(c: NodeContext) -> tuple[int, ...] | None:
    """The axes to join; None where nothing is to be done."""
    rank = len(c.shape(0))
    given: tuple[int, ...] = tuple(c.attr("axes") or ())
    if c.has(1):
        given = c.ints(1, "axes")
    if not given:
        return None if c.attr("noop_with_empty_axes", 0) else tuple(range(rank))
    if any(not -rank <= axis < rank for axis in given):
        raise NotSupportedError(f"axes {list(given)} of {rank} dimensions")
    return tuple(sorted({axis % rank for axis in given}))


def reduced(
    emit: Emitter,
    inputs: Sequence[Tensor],
    formula: str,
    step: str,
    axes: Sequence[int],
    keep: bool = True,
) -> Tensor:
    """The formula's values joined along axes."""
    attrs: dict[str, Attr] = {
        "formula": formula, "step": step, "axes": tuple(axes), "keep_dims": keep,
    }  # fmt: skip
    return emit.call("reduction", inputs, attrs)


def _reduce(formula: str, step: str, last: str, c: NodeContext) -> Tensor:
    """`last` of the values of `formula` joined by `step`."""
    axes, x = joined_axes(c), c.input(0)
    keep = bool(c.attr("keepdims", 1))
    if axes is None:
        # Nothing is joined, but each element still goes through both formulas.
        return c.emit.expression(last, c.emit.expression(formula, x))
    y = reduced(c.emit, [x], formula, step, axes, keep)
    return y if last == "a" else c.emit.expression(last, y)


# Our own reduce_max begins with the least finite number, as TFLite's does; here it is -inf.


def _extreme(step: str, c: NodeContext) -> Tensor:
    axes, keep = joined_axes(c), bool(c.attr("keepdims", 1))
    if axes is None:
        return c.input(0)
    if dtype_of(c.input(0)) == BOOL:
        return reduced(c.emit, [c.input(0)], "a", {"max": "or", "min": "and"}[step], axes, keep)
    return reduced(c.emit, [c.input(0)], "a", step, axes, keep)


def _mean(c: NodeContext) -> Tensor:
    axes, keep = joined_axes(c), bool(c.attr("keepdims", 1))
    if axes is None:
        return c.input(0)
    return mean(c.emit, c.input(0), axes, keep)


def mean(emit: Emitter, x: Tensor, axes: Sequence[int], keep: bool = True) -> Tensor:
    if dtype_of(x) == FLOAT32:
        attrs: dict[str, Attr] = {"axes": tuple(axes), "keep_dims": keep}
        return emit.call("mean", [x], attrs)
    count = math.prod(shape_of(x)[axis] for axis in axes)
    return emit.expression(f"a / {count}", reduced(emit, [x], "a", "add", axes, keep))


def _log_sum_exp(c: NodeContext) -> Tensor:
    axes, x = joined_axes(c), c.input(0)
    only_floats(c)
    if axes is None:
        return x
    highest = reduced(c.emit, [x], "a", "max", axes)
    total = reduced(c.emit, [x, highest], "exp(a - b)", "add", axes)
    y = c.emit.expression("log(a) + b", total, highest)
    return y if c.attr("keepdims", 1) else c.emit.reshape(y, _without(shape_of(y), axes))


def _without(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(n for axis, n in enumerate(shape) if axis not in axes)


# ---- softmaxes ---------------------------------------------------------------------------------


def _softmax(c: NodeContext) -> Tensor:
    only_floats(c)
    axis, rank = c.axis(-1), len(c.shape(0))
    perm = [k for k in range(rank) if k != axis] + [axis]
    moved = c.emit.transpose(c.input(0), perm)
    y = c.emit.call("softmax", [moved], {"beta": 1.0})
    return c.emit.transpose(y, [perm.index(k) for k in range(rank)])


def _log_softmax(c: NodeContext) -> Tensor:
    only_floats(c)
    x, axis = c.input(0), c.axis(-1)
    highest = reduced(c.emit, [x], "a", "max", (axis,))
    total = reduced(c.emit, [x, highest], "exp(a - b)", "add", (axis,))
    return c.emit.expression("a - b - log(c)", x, highest, total)


def _hardmax(c: NodeContext) -> Tensor:
    """1 at the first of the greatest values."""
    only_floats(c)
    axis, shape = c.axis(-1), c.shape(0)
    attrs: dict[str, Attr] = {"axis": axis, "least": False, "last": False}
    place = c.emit.call("arg_extreme", [c.input(0)], attrs, dtype=INT32)
    line = [1] * len(shape)
    line[axis] = shape[axis]
    steps = c.emit.const(np.arange(shape[axis], dtype=np.int32).reshape(line), "places")
    wide = list(shape)
    wide[axis] = 1
    spread = c.emit.reshape(place, wide)
    return c.emit.expression("where(a == b, 1.0, 0.0)", spread, steps)


def _lp_normalization(c: NodeContext) -> Tensor:
    only_floats(c)
    axis, order = c.axis(-1), int(c.attr("p", 2))
    formula, root = ("abs(a)", "b") if order == 1 else ("a * a", "sqrt(b)")
    total = reduced(c.emit, [c.input(0)], formula, "add", (axis,))
    return c.emit.expression(f"size = {root}; where(size == 0.0, 0.0, a / size)", c.input(0), total)


# ---- normalisations ----------------------------------------------------------------------------


def _channels(tensor: Tensor, rank: int, emit: Emitter) -> Tensor:
    """A vector with one value a channel, spread over [n, c, ...]."""
    return emit.reshape(tensor, (math.prod(shape_of(tensor)), *(1,) * (rank - 2)))


def _batch_normalization(c: NodeContext) -> Tensor:
    only_floats(c)
    if c.attr("training_mode", 0):
        raise NotSupportedError("normalisation while training")
    x, rank = c.input(0), len(c.shape(0))
    vectors = [c.input(index) for index in range(1, 5)]
    epsilon = float(c.attr("epsilon", 1e-5))
    if rank > 1 and all(isinstance(item, Const) for item in vectors):
        scale, bias, middle, variance = (
            np.asarray(item.array, np.float64) for item in vectors if isinstance(item, Const)
        )
        factor = scale / np.sqrt(variance + epsilon)
        shift = bias - middle * factor
        return c.emit.expression(
            "a * b + c",
            x,
            _channels(c.emit.const(factor.astype(np.float32), "factor"), rank, c.emit),
            _channels(c.emit.const(shift.astype(np.float32), "shift"), rank, c.emit),
        )
    spread = [_channels(item, max(rank, 2), c.emit) for item in vectors]
    return c.emit.expression(f"(a - d) / sqrt(e + {number(epsilon)}) * b + c", x, *spread)


def normalized(
    emit: Emitter, x: Tensor, axes: Sequence[int], epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(x less its mean, over its deviation; the mean; 1 over the deviation) along axes."""
    middle = mean(emit, x, axes)
    count = math.prod(shape_of(x)[axis] for axis in axes)
    total = reduced(emit, [x, middle], "(a - b) * (a - b)", "add", axes)
    inverse = emit.expression(f"1.0 / sqrt(a / {float(count)} + {number(epsilon)})", total)
    return emit.expression("(a - b) * c", x, middle, inverse), middle, inverse


def _layer_normalization(c: NodeContext) -> Sequence[Tensor]:
    only_floats(c)
    if c.attr("stash_type", 1) != 1:
        raise NotSupportedError("a stash type other than float32")
    axes = tuple(range(c.axis(-1), len(c.shape(0))))
    y, middle, inverse = normalized(c.emit, c.input(0), axes, float(c.attr("epsilon", 1e-5)))
    y = _scaled(c, y, c.optional(1), c.optional(2))
    return [y, middle, inverse][: len(c.outputs)]


def _scaled(c: NodeContext, y: Tensor, scale: Tensor | None, bias: Tensor | None) -> Tensor:
    if scale is not None and bias is not None:
        return c.emit.expression("a * b + c", y, scale, bias)
    return y if scale is None else c.emit.expression("a * b", y, scale)


def _instance_normalization(c: NodeContext) -> Tensor:
    only_floats(c)
    rank = len(c.shape(0))
    y, _, _ = normalized(c.emit, c.input(0), tuple(range(2, rank)), float(c.attr("epsilon", 1e-5)))
    return _scaled(c, y, *(_channels(c.input(k), rank, c.emit) for k in (1, 2)))


def _group_normalization(c: NodeContext) -> Tensor:
    only_floats(c)
    shape, groups = c.shape(0), int(c.attr("num_groups"))
    if shape[1] % groups:
        raise NotSupportedError(f"{groups} groups of {shape[1]} channels")
    inner = (shape[0], groups, math.prod(shape[1:]) // groups)
    rows = c.emit.reshape(c.input(0), inner)
    y, _, _ = normalized(c.emit, rows, (2,), float(c.attr("epsilon", 1e-5)))
    scale, bias = c.input(1), c.input(2)
    if c.opset < 21:
        # One value a group, not yet one a channel.
        scale, bias = (
            c.emit.reshape(
                c.emit.broadcast(c.emit.reshape(item, (groups, 1)), (groups, shape[1] // groups)),
                (shape[1],),
            )
            for item in (scale, bias)
        )
    wide = c.emit.reshape(y, shape)
    return _scaled(c, wide, *(_channels(item, len(shape), c.emit) for item in (scale, bias)))


def _rms_normalization(c: NodeContext) -> Tensor:
    only_floats(c)
    x, axes = c.input(0), tuple(range(c.axis(-1), len(c.shape(0))))
    count = math.prod(c.shape(0)[axis] for axis in axes)
    total = reduced(c.emit, [x], "a * a", "add", axes)
    epsilon = number(c.attr("epsilon", 1e-5))
    return c.emit.expression(f"a / sqrt(b / {float(count)} + {epsilon}) * c", x, total, c.input(1))


def _mean_variance_normalization(c: NodeContext) -> Tensor:
    only_floats(c)
    axes = tuple(axis % len(c.shape(0)) for axis in c.attr("axes", (0, 2, 3)))
    x = c.input(0)
    middle = mean(c.emit, x, axes)
    count = math.prod(c.shape(0)[axis] for axis in axes)
    total = reduced(c.emit, [x, middle], "(a - b) * (a - b)", "add", axes)
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
    "ReduceMax": partial(_extreme, "max"),
    "ReduceMean": _mean,
    "ReduceMin": partial(_extreme, "min"),
    "ReduceProd": partial(_reduce, "a", "mul", "a"),
    "ReduceSum": partial(_reduce, "a", "add", "a"),
    "ReduceSumSquare": partial(_reduce, "a * a", "add", "a"),
    "Softmax": _softmax,
}
