"""Scans of the rows of a matrix whose iterations do not depend on each other.

Distances from one sample to every row, as in nearest neighbors, are such a scan:

    for row in rows:  distance = reduce_sum_square(sample - row, axis 1)

A body of elementwise operators and reductions gives the same results at once if every
value has a leading axis of 1, which becomes the axis of the rows:

    sample [1, 3] - row [3]        ->  sample [1, 3] - rows [n, 3]
    reduce_sum of [1, 3], axis 1   ->  reduce_sum of [n, 3], axis 1

Operands that depend on the row must have this axis at the same place, so the rank of
the result.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.frontends.onnx.node_context import NodeContext, OnnxValue
from firmwright.frontends.onnx.protobuf import Message, attribute_value, tensor_array

_ELEMENTWISE = {
    "Abs",
    "Add",
    "Div",
    "Identity",
    "Max",
    "Min",
    "Mul",
    "Pow",
    "Sqrt",
    "Sub",
}
_REDUCTIONS = {"ReduceL1", "ReduceL2", "ReduceMax", "ReduceSum", "ReduceSumSquare"}
Shape: TypeAlias = tuple[int, ...]


def import_row_scan(
    c: NodeContext, body: Message, state: Sequence[OnnxValue], rows: OnnxValue
) -> list[OnnxValue] | None:
    """Return the results of all iterations, or None if the body is another one."""
    names = [item.name for item in body.input]
    if len(names) != len(state) + 1:
        return None
    initial = {name: value.shape for name, value in zip(names, state, strict=False)}
    shapes = _row_shapes(body, initial, names[-1], rows.shape[1:])
    if shapes is None:
        return None
    outputs = body.output[len(state) :]
    if any(item.name not in shapes for item in outputs):
        return None
    found = c.body(body, dict(zip(names, (*state, rows), strict=True)))
    stacked = []
    for item, value in zip(outputs, found[len(state) :], strict=True):
        shape = (rows.shape[0], *shapes[item.name])
        stacked.append(c.emit.reshape(value, shape))
    return [*state, *stacked]


def _row_shapes(
    body: Message, state: dict[str, Shape], row: str, row_shape: Shape
) -> dict[str, Shape] | None:
    """Return the shape, in one iteration, of each value that depends on the row.

    It is None if any iteration could give other results than all of them at once.
    """
    constants = {item.name: tensor_array(item) for item in body.initializer}
    shapes = {name: array.shape for name, array in constants.items()}
    shapes |= state
    kept = {name: name for name in state}
    dependent: dict[str, Shape] = {row: row_shape}
    for node in body.node:
        inputs = [name for name in node.input if name]
        (result,) = node.output if len(node.output) == 1 else ("",)
        if node.op_type == "Identity" and inputs and inputs[0] in kept:
            kept[result] = kept[inputs[0]]
        known = {**shapes, **dependent}
        data = inputs[:1] if node.op_type in _REDUCTIONS else inputs
        if not data or not all(name in known for name in data):
            return None
        shape = _result_shape(node, [known[name] for name in data], constants)
        if not result or not shape or shape[0] != 1:
            return None
        by_row = {name: dependent[name] for name in data if name in dependent}
        if not _is_axis_kept(node, by_row, row, len(shape)):
            return None
        target = dependent if by_row else shapes
        target[result] = shape
    ends = [item.name for item in body.output][: len(state)]
    if [kept.get(name) for name in ends] != list(state):
        return None
    del dependent[row]
    return dependent


def _is_axis_kept(
    node: Message, by_row: Mapping[str, Shape], row: str, rank: int
) -> bool:
    """Return whether the axis of the rows is the first one of operands and result.

    `by_row` has the operands that depend on the row. The row itself, of one iteration,
    does not have the axis.
    """
    if node.op_type in _REDUCTIONS:
        return row not in by_row
    return all(len(shape) + (name == row) == rank for name, shape in by_row.items())


def _result_shape(
    node: Message, shapes: Sequence[Shape], constants: Mapping[str, Array]
) -> Shape | None:
    if node.op_type in _ELEMENTWISE:
        try:
            return tuple(np.broadcast_shapes(*shapes))
        except ValueError:
            return None
    if node.op_type not in _REDUCTIONS or not shapes[0]:
        return None
    attrs = {item.name: attribute_value(item) for item in node.attribute}
    axes = attrs.get("axes")
    if len(node.input) > 1:
        stored = constants.get(node.input[1])
        axes = None if stored is None else stored.tolist()
    if not axes:
        return None
    reduced = {int(axis) % len(shapes[0]) for axis in axes}
    kept: list[int] = []
    for axis, size in enumerate(shapes[0]):
        if axis not in reduced:
            kept.append(size)
        elif attrs.get("keepdims", 1):
            kept.append(1)
    return None if 0 in reduced else tuple(kept)
