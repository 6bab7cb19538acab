"""Nodes of 16-bit floats, which compute in float32 as on ONNX Runtime's CPU provider.

Operators that move elements move the stored bits. All others take their 16-bit
operands as float32, and their results are rounded only where the model stores them
(`NarrowedValue`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from firmwright.base.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.onnx.data_lengths import length_of
from firmwright.frontends.onnx.node_context import (
    CallEmitter,
    ConstantValue,
    NodeContext,
    OnnxValue,
    Results,
)
from firmwright.frontends.onnx.node_schemas import (
    check_element_types,
    inferred_element_types,
)
from firmwright.frontends.onnx.qdq import NarrowedValue, QdqValue
from firmwright.frontends.onnx.value_table import ValueTable
from firmwright.ir.graph import TensorType, Value

_NARROW: Final = (FLOAT16, BFLOAT16)
_MOVING_OPERATORS: Final = frozenset(
    {
        "BitCast",
        "Cast",
        "CastLike",
        "Compress",
        "Concat",
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "If",
        "Loop",
        "OneHot",
        "Pad",
        "Reshape",
        "ReverseSequence",
        "Scan",
        "ScatterElements",
        "ScatterND",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Trilu",
        "Unsqueeze",
        "Where",
    }
)
_WITH_BODIES: Final = frozenset({"If", "Loop", "Scan"})


def import_numbers(
    values: ValueTable,
    c: NodeContext,
    inputs: Sequence[QdqValue | None],
    run: Callable[[NodeContext], Results | OnnxValue],
) -> list[QdqValue]:
    """Return the results of a node that `run` imports, [] if it is a function."""
    declared = declared_operands(values, inputs)
    check_element_types(c.node, c.opset, declared)
    operands = computed_operands(values, c, inputs, declared)
    results = run(replace(c, inputs=operands))
    found = results if isinstance(results, tuple | list) else (results,)
    return narrowed_results(c, declared, found)


def declared_operands(
    values: ValueTable, inputs: Sequence[QdqValue | None]
) -> list[OnnxValue | None]:
    """Return the operands with their types in the model.

    Those that are not rounded yet are stand-ins, of which only the type is valid.
    """
    operands: list[OnnxValue | None] = []
    for item in inputs:
        if isinstance(item, NarrowedValue):
            kind = TensorType(item.value.shape, item.dtype)
            operands.append(Value("narrowed", kind))
        else:
            operands.append(None if item is None else values.materialize(item))
    return operands


def computed_operands(
    values: ValueTable,
    c: NodeContext,
    inputs: Sequence[QdqValue | None],
    declared: Sequence[OnnxValue | None],
) -> tuple[OnnxValue | None, ...]:
    """Return the operands in the types in which the node computes or moves them."""
    op = c.node.op_type
    if op in _WITH_BODIES:
        return tuple(values.materialize_all(inputs))
    is_move = op in _MOVING_OPERATORS and c.attr("reduction", "none") == "none"
    is_rounded = not any(isinstance(item, NarrowedValue) for item in inputs)
    if op == "CastLike":
        first, *_ = inputs
        return (_number(c.emit, first, declared[0], keep=True), *declared[1:])
    keep = is_move and is_rounded
    operands: list[OnnxValue | None] = []
    for item, own in zip(inputs, declared, strict=True):
        operands.append(_number(c.emit, item, own, keep=keep))
    return tuple(operands)


def _number(
    emit: CallEmitter, item: QdqValue | None, declared: OnnxValue | None, *, keep: bool
) -> OnnxValue | None:
    """Return a 16-bit float as float32, unless it is stored and `keep` is set."""
    if isinstance(item, NarrowedValue):
        return item.value
    if declared is None or keep or not is_narrow(declared):
        return declared
    return emit.cast(declared, FLOAT32)


def is_narrow(operand: OnnxValue) -> bool:
    """Return whether the elements are 16-bit floats."""
    if isinstance(operand, ConstantValue):
        return operand.array.dtype.name in {dtype.name for dtype in _NARROW}
    return operand.type.dtype in _NARROW


def narrowed_results(
    c: NodeContext,
    declared: Sequence[OnnxValue | None],
    results: Results,
) -> list[QdqValue]:
    """Return the results, those that are 16-bit floats in the model as such."""
    narrow = [item.type.dtype for item in declared if item and is_narrow(item)]
    types: Iterable[DType | None] = inferred_element_types(c.node, c.opset, declared)
    found: list[QdqValue] = []
    for result, dtype in zip(results, types, strict=False):
        own = dtype or (narrow[0] if narrow else None)
        is_computed = result.type.dtype == FLOAT32
        if own in _NARROW and own is not None and is_computed:
            if length_of(c.emit, result) is not None:
                raise NotSupportedError(f"{own.name} whose length depends on the data")
            found.append(NarrowedValue(result, own))
        else:
            found.append(result)
    return found
