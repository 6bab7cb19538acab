"""Removal of ZipMap nodes and string labels, which become class indices, from ONNX-ML models."""

from firmwright.frontends.onnx.protobuf import Message, onnx_package

_NAMES = "classlabels_strings"


def has_class_labels(model: Message) -> bool:
    return any(
        node.op_type == "ZipMap" or any(item.name == _NAMES for item in node.attribute)
        for node in model.graph.node
        if node.domain == "ai.onnx.ml"
    )


def strip_class_labels(model: Message) -> None:
    """Change `model` in place: scores become plain tensors, labels become integers."""
    graph, onnx = model.graph, onnx_package()
    for node in [node for node in graph.node if node.op_type == "ZipMap"]:
        graph.node.remove(node)
        _replace_output(graph, node.output[0], node.input[0])
    for node in graph.node:
        for item in [item for item in node.attribute if item.name == _NAMES]:
            name = "classlabels_int64s" if "Tree" in node.op_type else "classlabels_ints"
            places = onnx.helper.make_attribute(name, list(range(len(item.strings))))
            node.attribute.remove(item)
            node.attribute.append(places)
    for output in graph.output:
        if output.type.tensor_type.elem_type == onnx.TensorProto.STRING:
            output.type.tensor_type.elem_type = onnx.TensorProto.INT64


def _replace_output(graph: Message, name: str, source: str) -> None:
    onnx = onnx_package()
    for output in graph.output:
        if output.name == name:
            output.CopyFrom(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    for node in graph.node:
        node.output[:] = [name if item == source else item for item in node.output]
        node.input[:] = [name if item == source else item for item in node.input]
