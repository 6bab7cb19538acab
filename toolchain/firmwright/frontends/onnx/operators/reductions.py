"""Reductions along axes, and what uses them: norms, softmax, normalizations."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

import numpy as np

from firmwright.base.dtypes import BOOL, FLOAT32, INT32
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.axes import normalize_axis
from firmwright.frontends.onnx.node_context import (
    CallEmitter,
    ConstantValue,
    Importer,
    NodeContext,
    OnnxValue,
    Results,
    vector_shape,
)
from firmwright.frontends.onnx.operators.elementwise import (
    float32_literal,
    float_literal,
    require_floats,
)
from firmwright.ir.graph.attributes.values import (
    ArgMinMaxAttrs,
    AxesAttrs,
    ReductionStep,
    SoftmaxAttrs,
)


def reduction_axes(c: NodeContext) -> tuple[int, ...] | None:
    """Return the axes to reduce, or None for no reduction."""
    rank = c.rank
    axes = c.ints(1, "axes") if c.has(1) else tuple(c.attr("axes") or ())
    if not axes:
        return None if c.attr("noop_with_empty_axes", 0) else tuple(range(rank))
    if any(not -rank <= axis < rank for axis in axes):
        raise NotSupportedError(f"axes {list(axes)} of {rank} dimensions")
    return tuple(sorted({axis % rank for axis in axes}))


def _reduce(formula: str, step: ReductionStep, last: str, c: NodeContext) -> OnnxValue:
    axes, x = reduction_axes(c), c.input(0)
    keep = bool(c.attr("keepdims", 1))
    if last != "a":
        require_floats(c)
    if axes is None:
        # Nothing is reduced, but both formulas still apply to each element.
        return c.emit.expression(last, c.emit.expression(formula, x))
    y = c.emit.reduction(formula, step, axes, x, keep=keep)
    return y if last == "a" else c.emit.expression(last, y)


def _reduce_min_max(step: Literal["min", "max"], c: NodeContext) -> OnnxValue:
    axes = reduction_axes(c)
    keep = bool(c.attr("keepdims", 1))
    x = c.input(0)
    if axes is None:
        return x
    combine: ReductionStep = step
    if x.type.dtype == BOOL:
        combine = "or" if step == "max" else "and"
    # Unlike TFLite's reduce_max, this starts from -inf, not the least finite number.
    return c.emit.reduction("a", combine, axes, x, keep=keep)


def _mean(c: NodeContext) -> OnnxValue:
    axes, keep = reduction_axes(c), bool(c.attr("keepdims", 1))
    return c.input(0) if axes is None else emit_mean(c, c.input(0), axes, keep)


def _epsilon(c: NodeContext) -> str:
    """Return the attribute in the type of the elements; in files it is float32."""
    value = float(c.attr("epsilon", np.float32(1e-5)))
    return float_literal(value, c.dtype(0))


def emit_mean(
    c: NodeContext, x: OnnxValue, axes: Sequence[int], keep: bool = True
) -> OnnxValue:
    if x.type.dtype in (FLOAT32, INT32):
        return c.emit.call("mean", x, attrs=AxesAttrs(axes=tuple(axes), keep_dims=keep))
    total = c.emit.reduction("a", "add", axes, x, keep=keep)
    return c.emit.expression(f"a / {_count(x, axes)}", total)


def _count(x: OnnxValue, axes: Sequence[int]) -> int:
    return math.prod(x.shape[axis] for axis in axes)


def _log_sum_exp(c: NodeContext) -> OnnxValue:
    axes, x = reduction_axes(c), c.input(0)
    require_floats(c)
    if axes is None:
        return x
    limit = c.emit.reduction("a", "max", axes, x)
    # Infinities are not subtracted from each other.
    highest = c.emit.expression("where(abs(a) < inf, a, 0.0)", limit)
    total = c.emit.reduction("exp(a - b)", "add", axes, x, highest)
    y = c.emit.expression("log(a) + b", total, highest)
    if c.attr("keepdims", 1):
        return y
    kept = [n for axis, n in enumerate(y.shape) if axis not in axes]
    return c.emit.reshape(y, kept)


def _softmax(c: NodeContext) -> OnnxValue:
    require_floats(c)
    return emit_softmax(c.emit, c.input(0), c.axis(-1))


def emit_softmax(emit: CallEmitter, x: OnnxValue, axis: int) -> OnnxValue:
    if x.type.dtype != FLOAT32:
        highest = emit.reduction("a", "max", (axis,), x)
        powers = emit.expression("exp(a - b)", x, highest)
        total = emit.reduction("a", "add", (axis,), powers)
        return emit.expression("a / b", powers, total)
    perm, inverse = axis_last(axis, len(x.shape))
    y = emit.call("softmax", emit.transpose(x, perm), attrs=SoftmaxAttrs(beta=1.0))
    return emit.transpose(y, inverse)


def axis_last(axis: int, rank: int) -> tuple[list[int], list[int]]:
    """Return the permutation that makes `axis` the last one, and its inverse."""
    perm = [k for k in range(rank) if k != axis]
    perm.append(axis)
    inverse = [perm.index(k) for k in range(rank)]
    return perm, inverse


def _log_softmax(c: NodeContext) -> OnnxValue:
    require_floats(c)
    x, axis = c.input(0), c.axis(-1)
    highest = c.emit.reduction("a", "max", (axis,), x)
    total = c.emit.reduction("exp(a - b)", "add", (axis,), x, highest)
    return c.emit.expression("a - b - log(c)", x, highest, total)


def _hardmax(c: NodeContext) -> OnnxValue:
    require_floats(c)
    x, axis, shape = c.input(0), c.axis(-1), c.shape(0)
    attrs = ArgMinMaxAttrs(axis=axis, least=False, last=False)
    place = c.emit.call("arg_min_max", x, attrs=attrs, result=INT32)
    line = np.arange(shape[axis], dtype=np.int32)
    line = line.reshape(vector_shape(shape[axis], axis, c.rank))
    places = c.emit.const(line, "places")
    spread = c.emit.reshape(place, (*shape[:axis], 1, *shape[axis + 1 :]))
    kind = c.dtype(0).name
    return c.emit.expression(f"where(a == b, {kind}(1), {kind}(0))", spread, places)


def _lp_normalization(c: NodeContext) -> OnnxValue:
    require_floats(c)
    axis, order = c.axis(-1), int(c.attr("p", 2))
    formula, root = ("abs(a)", "b") if order == 1 else ("a * a", "sqrt(b)")
    total = c.emit.reduction(formula, "add", (axis,), c.input(0))
    quotient = f"size = {root}; where(size == 0.0, 0.0, a / size)"
    return c.emit.expression(quotient, c.input(0), total)


def _broadcast_channels(c: NodeContext, tensor: OnnxValue, rank: int) -> OnnxValue:
    """Reshape a vector with one value per channel to broadcast to [n, c, ...]."""
    return c.emit.reshape(tensor, (math.prod(tensor.shape), *(1,) * (rank - 2)))


def _batch_normalization(c: NodeContext) -> Results | OnnxValue:
    require_floats(c)
    x, rank = c.input(0), c.rank
    vectors = [c.input(index) for index in range(1, 5)]
    epsilon = float(_epsilon(c))
    if c.attr("training_mode", 0):
        return _normalize_in_training(c, epsilon)
    constants = [v.array for v in vectors if isinstance(v, ConstantValue)]
    if rank > 1 and len(constants) == 4:
        doubles = [array.astype(np.float64) for array in constants]
        scale, bias, middle, variance = doubles
        factor = scale / np.sqrt(variance + epsilon)
        shift = bias - middle * factor
        kind = c.dtype(0).np
        b = c.emit.const(factor.astype(kind), "factor")
        d = c.emit.const(shift.astype(kind), "shift")
        pair = _broadcast_channels(c, b, rank), _broadcast_channels(c, d, rank)
        return c.emit.expression("a * b + c", x, *pair)
    spread = [_broadcast_channels(c, item, max(rank, 2)) for item in vectors]
    formula = f"(a - d) / sqrt(e + {epsilon!r}) * b + c"
    return c.emit.expression(formula, x, *spread)


def _normalize_in_training(c: NodeContext, epsilon: float) -> Results:
    """Normalize by the statistics of the batch, and move the channels' own to them."""
    x, rank = c.input(0), c.rank
    if rank < 2:
        raise NotSupportedError("normalization while training, of one dimension")
    axes = (0, *range(2, rank))
    count = float(_count(x, axes))
    middle = emit_mean(c, x, axes)
    total = c.emit.reduction("(a - b) * (a - b)", "add", axes, x, middle)
    variance = c.emit.expression(f"a / {count}", total)
    scale, bias = (_broadcast_channels(c, c.input(k), rank) for k in (1, 2))
    formula = f"(a - d) / sqrt(e + {float32_literal(epsilon)}) * b + c"
    y = c.emit.expression(formula, x, scale, bias, middle, variance)
    momentum = float(c.attr("momentum", 0.9))
    kept, new = float32_literal(momentum), float32_literal(1 - momentum)
    moved: list[OnnxValue] = []
    for index, batch in ((3, middle), (4, variance)):
        own = c.emit.reshape(batch, c.shape(index))
        blend = c.emit.expression(f"a * {kept} + b * {new}", c.input(index), own)
        moved.append(blend)
    return [y, *moved][: len(c.outputs)]


def _emit_normalization(
    c: NodeContext, x: OnnxValue, axes: Sequence[int]
) -> tuple[OnnxValue, OnnxValue, OnnxValue]:
    """Emit (normalized x, mean, 1 / standard deviation) along axes."""
    middle = emit_mean(c, x, axes)
    epsilon = _epsilon(c)
    total = c.emit.reduction("(a - b) * (a - b)", "add", axes, x, middle)
    formula = f"1.0 / sqrt(a / {float(_count(x, axes))} + {epsilon})"
    inverse = c.emit.expression(formula, total)
    return c.emit.expression("(a - b) * c", x, middle, inverse), middle, inverse


def _layer_normalization(c: NodeContext) -> Results:
    require_floats(c)
    if c.attr("stash_type", 1) != 1:
        raise NotSupportedError("a stash type other than float32")
    y, middle, inverse = _emit_normalization(c, c.input(0), range(c.axis(-1), c.rank))
    y = _scale_and_shift(c, y, c.optional(1), c.optional(2))
    return [y, middle, inverse][: len(c.outputs)]


def _scale_and_shift(
    c: NodeContext, y: OnnxValue, scale: OnnxValue | None, bias: OnnxValue | None
) -> OnnxValue:
    if scale is not None and bias is not None:
        return c.emit.expression("a * b + c", y, scale, bias)
    return y if scale is None else c.emit.expression("a * b", y, scale)


def _instance_normalization(c: NodeContext) -> OnnxValue:
    require_floats(c)
    y, _, _ = _emit_normalization(c, c.input(0), range(2, c.rank))
    vectors = (_broadcast_channels(c, c.input(k), c.rank) for k in (1, 2))
    return _scale_and_shift(c, y, *vectors)


def _group_normalization(c: NodeContext) -> OnnxValue:
    require_floats(c)
    shape, groups = c.shape(0), int(c.attr("num_groups"))
    if shape[1] % groups:
        raise NotSupportedError(f"{groups} groups of {shape[1]} channels")
    inner = (shape[0], groups, math.prod(shape[1:]) // groups)
    rows = c.emit.reshape(c.input(0), inner)
    y, _, _ = _emit_normalization(c, rows, (2,))
    vectors = [c.input(1), c.input(2)]
    if c.opset < 21:
        # One value per group, not per channel.
        for k, item in enumerate(vectors):
            column = c.emit.reshape(item, (groups, 1))
            repeated = c.emit.broadcast(column, (groups, shape[1] // groups))
            vectors[k] = c.emit.reshape(repeated, (shape[1],))
    wide = c.emit.reshape(y, shape)
    spread = [_broadcast_channels(c, item, c.rank) for item in vectors]
    return _scale_and_shift(c, wide, *spread)


def import_rms_normalization(c: NodeContext) -> OnnxValue:
    require_floats(c)
    x, axes = c.input(0), range(c.axis(-1), c.rank)
    total = c.emit.reduction("a * a", "add", axes, x)
    epsilon = _epsilon(c)
    root = f"sqrt(b / {float(_count(x, axes))} + {epsilon})"
    return c.emit.expression(f"a / {root} * c", x, total, c.input(1))


def _mean_variance_normalization(c: NodeContext) -> OnnxValue:
    require_floats(c)
    x = c.input(0)
    axes = [normalize_axis(axis, c.rank) for axis in c.attr("axes", (0, 2, 3))]
    middle = emit_mean(c, x, axes)
    total = c.emit.reduction("(a - b) * (a - b)", "add", axes, x, middle)
    formula = f"(a - b) / sqrt(c / {float(_count(x, axes))})"
    return c.emit.expression(formula, x, middle, total)


IMPORTERS: Mapping[str, Importer] = {
    "BatchNormalization": _batch_normalization,
    "GroupNormalization": _group_normalization,
    "Hardmax": _hardmax,
    "InstanceNormalization": _instance_normalization,
    "LayerNormalization": _layer_normalization,
    "LogSoftmax": _log_softmax,
    "LpNormalization": _lp_normalization,
    "MeanVarianceNormalization": _mean_variance_normalization,
    "RMSNormalization": import_rms_normalization,
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
