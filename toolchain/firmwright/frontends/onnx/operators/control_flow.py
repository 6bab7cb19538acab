"""If, Loop and Scan: the chosen branch, or unrolled iterations.

If a condition is known only at run time, both branches are computed, or all iterations
up to the trip count, and the results are selected.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from firmwright.base.errors import NotSupportedError
from firmwright.base.resource_limits import RAISED_BY, scaled_limit
from firmwright.frontends.onnx.node_context import (
    ConstantValue,
    Importer,
    NodeContext,
    OnnxValue,
)
from firmwright.frontends.onnx.operators.row_scan import import_row_scan

_OTHER_RESULTS = "results whose shapes or types depend on a run-time condition"
_ROUNDS_MAX = 256


def _constant(c: NodeContext) -> OnnxValue:
    for name, kind in (
        ("value_int", np.int64),
        ("value_ints", np.int64),
        ("value_float", np.float32),
        ("value_floats", np.float32),
    ):
        if c.attr(name) is not None:
            return c.emit.const(np.asarray(c.attr(name), kind), "value")
    value = c.attr("value")
    if value is None:
        raise NotSupportedError("a constant that is not a plain tensor")
    return c.emit.const(value, "value")


def _constant_of_shape(c: NodeContext) -> OnnxValue:
    filler = c.attr("value", np.zeros(1, np.float32))
    return c.emit.const(np.full(c.ints(0, "shapes"), filler[0], filler.dtype), "filled")


def _if(c: NodeContext) -> Sequence[OnnxValue]:
    condition = c.input(0)
    if isinstance(condition, ConstantValue):
        name = "then_branch" if condition.array.all() else "else_branch"
        return c.body(c.attr(name), {})
    branches = [c.body(c.attr(name), {}) for name in ("then_branch", "else_branch")]
    return [_chosen(c, condition, *pair) for pair in zip(*branches, strict=True)]


def _chosen(
    c: NodeContext, condition: OnnxValue, x: OnnxValue, y: OnnxValue
) -> OnnxValue:
    """Return the result of one of two branches, which may differ in one length."""
    sizes = zip(x.shape, y.shape, strict=False)
    axes = [axis for axis, (m, n) in enumerate(sizes) if m != n]
    if len(axes) != 1 or len(x.shape) != len(y.shape):
        return _selected(c, condition, x, y)
    if x.type.dtype.computed_as:
        raise NotSupportedError("stored numbers whose length depends on the data")
    (axis,) = axes
    greatest = max(x.shape[axis], y.shape[axis])
    padded = [_padded(c, item, axis, greatest) for item in (x, y)]
    lengths = [
        c.emit.const(np.array(item.shape[axis], np.int32), "length") for item in (x, y)
    ]
    result = _selected(c, condition, padded[0], padded[1])
    return c.emit.counted(result, axis, _selected(c, condition, lengths[0], lengths[1]))


def _padded(c: NodeContext, x: OnnxValue, axis: int, length: int) -> OnnxValue:
    """Return x with zeros after its elements along an axis."""
    shape = list(x.shape)
    shape[axis] = length - shape[axis]
    if not shape[axis]:
        return x
    zeros = c.emit.const(np.zeros(shape, x.type.dtype.np), "padding")
    return c.emit.concat([x, zeros], axis)


def _selected(
    c: NodeContext, condition: OnnxValue, x: OnnxValue, y: OnnxValue
) -> OnnxValue:
    if isinstance(condition, ConstantValue):
        return x if condition.array.all() else y
    if (x.shape, x.type.dtype) != (y.shape, y.type.dtype):
        raise NotSupportedError(_OTHER_RESULTS)
    return c.emit.expression("where(c, a, b)", x, y, c.emit.reshape(condition, ()))


def _both(c: NodeContext, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    for x, y in ((a, b), (b, a)):
        if isinstance(x, ConstantValue):
            return y if x.array.all() else x
    return c.emit.expression("a and b", c.emit.reshape(a, ()), c.emit.reshape(b, ()))


def _loop(c: NodeContext) -> Sequence[OnnxValue]:
    body = c.attr("body")
    state = [c.input(index) for index in range(2, len(c.inputs))]
    rounds_max = scaled_limit(_ROUNDS_MAX)
    rounds = int(c.scalar(0, "trip counts")) if c.has(0) else rounds_max + 1
    always = ConstantValue(np.array(True), "condition")
    going = c.optional(1) or always
    names = [item.name for item in body.input]
    result_count = len(body.output) - 1 - len(state)
    collected: list[list[OnnxValue]] = [[] for _ in range(result_count)]
    done = 0
    while done < rounds and not _is_false(going):
        if done == rounds_max:
            raise NotSupportedError(
                f"a loop of more than {rounds_max} iterations ({RAISED_BY})"
            )
        if collected and not isinstance(going, ConstantValue):
            raise NotSupportedError(
                "a loop with scan outputs whose end depends on the data"
            )
        counter = ConstantValue(np.array(done, np.int64), "round")
        operands = (counter, always, *state)
        condition, *results = c.body(body, dict(zip(names, operands, strict=True)))
        pairs = zip(results[: len(state)], state, strict=True)
        following = [_selected(c, going, *pair) for pair in pairs]
        for collector, item in zip(collected, results[len(state) :], strict=True):
            collector.append(item)
        done = done + 1
        state = following
        going = _both(c, going, condition)
    stacked = [_stack(c, items) for items in collected]
    return [*state, *stacked]


def _is_false(condition: OnnxValue) -> bool:
    return isinstance(condition, ConstantValue) and not condition.array.all()


def _stack(c: NodeContext, items: Sequence[OnnxValue], axis: int = 0) -> OnnxValue:
    if not items:
        raise NotSupportedError("a loop with scan outputs but no iterations")
    shape = list(items[0].shape)
    shape.insert(axis, 1)
    return c.emit.concat([c.emit.reshape(item, shape) for item in items], axis)


def _scan(c: NodeContext) -> Sequence[OnnxValue]:
    body = c.attr("body")
    scanned = int(c.attr("num_scan_inputs"))
    inputs = c.all_inputs()
    state = inputs[: len(inputs) - scanned]
    sources = inputs[len(inputs) - scanned :]
    names = [item.name for item in body.input]
    result_count = len(body.output) - len(state)
    axes = _axes_attr(c, "scan_input_axes", [len(item.shape) for item in sources])
    backwards = c.attr("scan_input_directions") or (0,) * scanned
    rounds = sources[0].shape[axes[0]]
    if scanned == 1 and not axes[0] and not backwards[0] and _is_stacked_first(c):
        results = import_row_scan(c, body, state, sources[0])
        if results is not None:
            return results
    rounds_max = scaled_limit(_ROUNDS_MAX)
    if rounds > rounds_max:
        raise NotSupportedError(
            f"a scan of {rounds} iterations, more than {rounds_max} ({RAISED_BY})"
        )
    collected: list[list[OnnxValue]] = [[] for _ in range(result_count)]
    for turn in range(rounds):
        slices: list[OnnxValue] = []
        for source, axis, back in zip(sources, axes, backwards, strict=True):
            place = rounds - 1 - turn if back else turn
            slices.append(c.emit.index_axis(source, axis, place))
        results = c.body(body, dict(zip(names, (*state, *slices), strict=True)))
        state = results[: len(state)]
        for collector, item in zip(collected, results[len(state) :], strict=True):
            collector.append(item)
    reversed_outputs = c.attr("scan_output_directions") or (0,) * result_count
    ranks = [len(items[0].shape) + 1 for items in collected]
    output_axes = _axes_attr(c, "scan_output_axes", ranks)
    outputs = list(state)
    rows = zip(collected, reversed_outputs, output_axes, strict=True)
    for items, back, axis in rows:
        ordered = items[::-1] if back else items
        outputs.append(_stack(c, ordered, axis))
    return outputs


def _is_stacked_first(c: NodeContext) -> bool:
    """Return whether scan outputs are stacked in the order of the scan, on axis 0."""
    names = ("scan_output_axes", "scan_output_directions")
    return not any(any(c.attr(name) or ()) for name in names)


def _axes_attr(c: NodeContext, name: str, ranks: Sequence[int]) -> list[int]:
    axes = c.attr(name) or (0,) * len(ranks)
    return [int(axis) % rank for axis, rank in zip(axes, ranks, strict=True)]


IMPORTERS: Mapping[str, Importer] = {
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
}
