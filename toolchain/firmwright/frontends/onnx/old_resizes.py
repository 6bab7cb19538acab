"""Attributes of the Resize nodes that the converter of opsets makes of older operators.

Upsample (to opset 9) and the Resize of opset 10 have no attributes for coordinates: output i is at
i / scale. The converter omits those that say so in later opsets, where the default is another one.
Nearest neighbor is the input before, but ONNX Runtime takes the one after along an axis of a
Resize that shrinks.
"""

from collections.abc import Iterator, Mapping

from firmwright.base.dtypes import Array
from firmwright.frontends.onnx.protobuf import Message, onnx_package


def complete_old_resizes(model: Message, version: int) -> bool:
    """Complete the Resize nodes of a model that was of opset `version`, 10 or older.

    Return False if a node has no equivalent: nearest neighbor with axes that grow and others that
    shrink, or with scales that are not constant.
    """
    graphs = list(_graphs(model.graph))
    constants = {name: array for graph in graphs for name, array in _constants(graph)}
    for node in (node for graph in graphs for node in graph.node if node.op_type == "Resize"):
        nearest = _nearest_mode(node, constants) if version == 10 else "floor"
        if nearest is None:
            return False
        attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": nearest}
        for name, value in attrs.items():
            node.attribute.append(onnx_package().helper.make_attribute(name, value))
    return True


def _nearest_mode(node: Message, constants: Mapping[str, Array]) -> str | None:
    modes = [item.s for item in node.attribute if item.name == "mode"]
    if modes and modes[0] != b"nearest":
        return "floor"  # of no effect
    scales = constants.get(node.input[2])
    if scales is None or ((scales < 1).any() and (scales > 1).any()):
        return None
    return "ceil" if (scales < 1).any() else "floor"


def _graphs(graph: Message) -> Iterator[Message]:
    """Yield a graph and the bodies of its nodes."""
    yield graph
    for node in graph.node:
        for item in node.attribute:
            for body in (*([item.g] if item.HasField("g") else ()), *item.graphs):
                yield from _graphs(body)


def _constants(graph: Message) -> Iterator[tuple[str, Array]]:
    to_array = onnx_package().numpy_helper.to_array
    for tensor in graph.initializer:
        yield tensor.name, to_array(tensor)
    for node in graph.node:
        for item in node.attribute:
            if node.op_type == "Constant" and item.name == "value":
                yield node.output[0], to_array(item.t)
