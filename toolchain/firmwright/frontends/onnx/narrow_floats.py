"""Nodes of 16-bit floats, which compute in float32 as on ONNX Runtime's CPU provider.

Operators that move elements move the stored bits. All others take their 16-bit
operands as float32, and their results are rounded only where the model stores them
(`NarrowedValue`). They take also the operand of a Cast to float16 as it was before, if
no other Cast reads the result.
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
from firmwright.frontends.onnx.protobuf import dtype_name
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
    if _is_move(c):
        inputs = [_rounded(values, item) for item in inputs]
    declared = declared_operands(values, inputs)
    check_element_types(c.node, c.opset, declared)
    narrowed = _narrowing_cast(values, c, declared)
    if narrowed is not None:
        return [narrowed]
    operands = computed_operands(values, c, inputs, declared)
    results = run(replace(c, inputs=operands))
    found = results if isinstance(results, tuple | list) else (results,)
    return narrowed_results(c, declared, found)


def _is_move(c: NodeContext) -> bool:
    """Return whether the node moves or converts elements."""
    is_reduction = c.attr("reduction", "none") != "none"
    return c.node.op_type in _MOVING_OPERATORS and not is_reduction


def _rounded(values: ValueTable, item: QdqValue | None) -> QdqValue | None:
    """Return the result of a Cast as the model stores it."""
    if isinstance(item, NarrowedValue) and item.is_cast:
        return values.materialize(item)
    return item


def _narrowing_cast(
    values: ValueTable, c: NodeContext, declared: Sequence[OnnxValue | None]
) -> NarrowedValue | None:
    """Return the result of a Cast to float16 that no other Cast reads."""
    if c.node.op_type != "Cast" or dtype_name(int(c.attr("to", 0))) != FLOAT16.name:
        return None
    (operand,) = declared
    readers = values.readers.get(c.outputs[0], ())
    if any(reader.op_type == "Cast" for reader in readers):
        return None
    if operand is None or operand.type.dtype.computed_as:
        return None
    return NarrowedValue(c.emit.cast(operand, FLOAT32), FLOAT16, is_cast=True)


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
    is_rounded = not any(isinstance(item, NarrowedValue) for item in inputs)
    if op == "CastLike":
        first, *_ = inputs
        return (_number(c.emit, first, declared[0], keep=True), *declared[1:])
    keep = _is_move(c) and is_rounded
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
