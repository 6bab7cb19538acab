"""Results whose length depends on the data, as tensors of their greatest length.

Only the first elements along one axis are in use; their number is a tensor too. The
rules state which operators may read such a tensor and along which axis their results
have that length. Each output of a model with such a length has a second output with the
number, NAME_count.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from firmwright.base.counted_outputs import count_name
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.axes import normalize_axis
from firmwright.frontends.onnx.node_context import (
    CallEmitter,
    DataLength,
    NodeContext,
    OnnxValue,
    Results,
)
from firmwright.frontends.onnx.node_schemas import check_element_types
from firmwright.ir.graph.nodes import Value

_Rule: TypeAlias = Callable[[NodeContext, Mapping[int, int]], int]
"""A node and the axes of its inputs of such a length -> the axis of its results."""


def length_of(emit: CallEmitter, x: object) -> DataLength | None:
    return emit.lengths.get(x.name) if isinstance(x, Value) else None


def import_counted(
    c: NodeContext, run: Callable[[NodeContext], Results | OnnxValue]
) -> Sequence[OnnxValue]:
    """Import a node with inputs of such a length, or raise NotSupportedError."""
    check_element_types(c.node, c.opset, c.inputs)
    lengths: dict[int, DataLength] = {}
    for index, item in enumerate(c.inputs):
        length = length_of(c.emit, item)
        if length is not None:
            lengths[index] = length
        if item is not None and item.type.dtype.computed_as:
            raise NotSupportedError("stored numbers whose length depends on the data")
    counts = {id(length.count): length.count for length in lengths.values()}
    rule = _RULES.get(c.node.op_type)
    if rule is None or len(counts) != 1:
        raise NotSupportedError("an input whose length depends on the data")
    axis = rule(c, {index: length.axis for index, length in lengths.items()})
    results = run(c)
    found = results if isinstance(results, tuple | list) else (results,)
    (count,) = counts.values()
    return [c.emit.counted(result, axis, count) for result in found]


def count_outputs(emit: CallEmitter, outputs: Mapping[str, object]) -> list[Value]:
    """Emit the outputs NAME_count of the outputs of such a length."""
    counts: list[Value] = []
    for name, definition in outputs.items():
        length = length_of(emit, definition)
        if length is not None:
            counts.append(emit.copy(length.count, count_name(name)))
    return counts


def _refuse(why: str) -> NotSupportedError:
    return NotSupportedError(f"an input whose length depends on the data, {why}")


def _elementwise(c: NodeContext, axes: Mapping[int, int]) -> int:
    """Align the axes from the last one, as broadcasting does."""
    inputs = [item for item in c.inputs if item is not None]
    rank = max(len(item.shape) for item in inputs)
    places = {rank - len(c.shape(index)) + axis for index, axis in axes.items()}
    if len(places) != 1:
        raise _refuse("along several axes")
    (place,) = places
    for index, item in enumerate(c.inputs):
        own = -1 if item is None else place - rank + len(item.shape)
        if item is not None and index not in axes and own >= 0 and item.shape[own] > 1:
            raise _refuse("with one of a fixed length")
    return place


def _gather(c: NodeContext, axes: Mapping[int, int]) -> int:
    axis = c.axis(0)
    if len(axes) != 1 or axes.get(0) == axis:
        raise _refuse("gathered along that axis")
    if 1 in axes:
        return axis + axes[1]
    return axes[0] if axes[0] < axis else axes[0] + len(c.shape(1)) - 1


def _gather_slices(c: NodeContext, axes: Mapping[int, int]) -> int:
    rank, batch_dims = len(c.shape(1)), int(c.attr("batch_dims", 0))
    if set(axes) != {1} or not batch_dims <= axes[1] < rank - 1:
        raise _refuse("of coordinates")
    return axes[1]


def _squeeze(c: NodeContext, axes: Mapping[int, int]) -> int:
    shape = c.shape(0)
    removed = [axis for axis, n in enumerate(shape) if n == 1]
    if c.has(1):
        removed = [normalize_axis(axis, c.rank) for axis in c.ints(1, "axes")]
    if set(axes) != {0} or axes[0] in removed:
        raise _refuse("removed")
    return axes[0] - sum(axis < axes[0] for axis in removed)


def _unsqueeze(c: NodeContext, axes: Mapping[int, int]) -> int:
    added = c.ints(1, "axes")
    rank = c.rank + len(added)
    new = {normalize_axis(axis, rank) for axis in added}
    kept = [axis for axis in range(rank) if axis not in new]
    return kept[axes[0]]


def _transpose(c: NodeContext, axes: Mapping[int, int]) -> int:
    perm = c.attr("perm", tuple(reversed(range(c.rank))))
    return list(perm).index(axes[0])


def _slice(c: NodeContext, axes: Mapping[int, int]) -> int:
    starts, ends = c.ints(1, "starts"), c.ints(2, "ends")
    sliced = c.ints(3, "axes") if c.has(3) else range(len(starts))
    steps = c.ints(4, "steps") if c.has(4) else (1,) * len(starts)
    size = c.shape(0)[axes[0]]
    for axis, first, last, step in zip(sliced, starts, ends, steps, strict=True):
        is_whole = first == 0 and last >= size and step == 1
        if normalize_axis(axis, c.rank) == axes[0] and not is_whole:
            raise _refuse("cut")
    return axes[0]


def _concat(c: NodeContext, axes: Mapping[int, int]) -> int:
    places = set(axes.values())
    if len(axes) != len(c.inputs) or len(places) != 1 or c.axis() in places:
        raise _refuse("joined")
    return places.pop()


def _reshape(c: NodeContext, axes: Mapping[int, int]) -> int:
    """Keep the axis only where the shape says -1 for it, between the same axes."""
    shape, axis = c.shape(0), axes[0]
    sizes = [shape[k] if n == 0 else n for k, n in enumerate(c.ints(1, "shapes"))]
    if -1 in sizes:
        place = sizes.index(-1)
        before, after = sizes[:place], sizes[place + 1 :]
        is_same = math.prod(before) == math.prod(shape[:axis])
        if is_same and math.prod(after) == math.prod(shape[axis + 1 :]):
            return place
    raise _refuse("reshaped")


_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(
        (
            *("Abs", "Add", "And", "Cast", "Ceil", "Clip", "Div", "Equal", "Exp"),
            *("Floor", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual"),
            *("Log", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow", "Relu"),
            *("Round", "Sigmoid", "Sqrt", "Sub", "Tanh", "Where"),
        ),
        _elementwise,
    ),
    "Concat": _concat,
    "Gather": _gather,
    "GatherND": _gather_slices,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
