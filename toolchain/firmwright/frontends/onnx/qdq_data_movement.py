"""Operators that copy elements, between DequantizeLinear and QuantizeLinear.

They move the integers.
"""

from dataclasses import replace

from firmwright.frontends.onnx.fusion import quantized_input
from firmwright.frontends.onnx.node_context import (
    ConstantValue,
    Importer,
    NodeContext,
    OnnxValue,
)
from firmwright.frontends.onnx.qdq import (
    DequantizedValue,
    NarrowedValue,
    QdqOperands,
    QuantizedValue,
)
from firmwright.ir.graph.nodes import Value

DATA_MOVEMENT_OPERATORS = frozenset(
    {
        "Concat",
        "DepthToSpace",
        "Dropout",
        "Expand",
        "Flatten",
        "Gather",
        "Identity",
        "MaxPool",
        "Pad",
        "Reshape",
        "Resize",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    }
)
_PROPAGATING_OPERATORS = frozenset(
    {
        "Dropout",
        "Identity",
        "MaxPool",
        "Reshape",
        "Slice",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    }
)
"""Operators that ONNX Runtime computes on integers even without a QuantizeLinear."""


def fuse_data_movement(
    importer: Importer, c: NodeContext, operands: QdqOperands
) -> list[DequantizedValue] | None:
    """Return the node's results by moving integers, or None if that is not exact."""
    reals = [item for item in operands if isinstance(item, DequantizedValue)]
    sources = [item.source for item in reals if isinstance(item.source, QuantizedValue)]
    if not sources or len(sources) != len(reals):
        return None
    if len({source.quantization for source in sources}) != 1:
        return None
    if not _only_copies_elements(c, operands):
        return None
    tensors: list[OnnxValue | None] = []
    for item in operands:
        if isinstance(item, QuantizedValue | NarrowedValue):
            return None
        if isinstance(item, DequantizedValue):
            tensors.append(quantized_input(item))
        else:
            tensors.append(item)
    if c.node.op_type == "Pad":
        tensors = tensors[:2] if len(tensors) < 4 else [*tensors[:2], None, tensors[3]]
    moved = importer(replace(c, inputs=tuple(tensors)))
    results: list[OnnxValue] = (
        [moved] if isinstance(moved, Value | ConstantValue) else list(moved)
    )
    kind = reals[0].integer_type if c.node.op_type in _PROPAGATING_OPERATORS else ""
    dequantized: list[DequantizedValue] = []
    for tensor in results:
        stored = QuantizedValue(c.emit.value(tensor), sources[0].is_unsigned)
        dequantized.append(DequantizedValue(stored, kind, reals[0].is_scalar))
    return dequantized


def _only_copies_elements(c: NodeContext, operands: QdqOperands) -> bool:
    match c.node.op_type:
        case "Resize":
            crops = c.attr("coordinate_transformation_mode") == "tf_crop_and_resize"
            return bool(c.attr("mode", "nearest") == "nearest" and not crops)
        case "Pad":
            value = operands[2] if len(operands) > 2 else None
            if isinstance(value, ConstantValue):
                is_zero = not value.array.any()
            else:
                is_zero = value is None
            return is_zero and c.attr("mode", "constant") == "constant"
        case "MaxPool" | "Dropout":
            return len([n for n in c.outputs if n]) == 1
    return True
