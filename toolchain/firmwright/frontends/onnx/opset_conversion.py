"""Conversion of models of older opsets to the oldest one that the importer reads.

The package onnx converts, except where it changes the meaning:

- Hardmax before opset 13 takes the maximum of each block of all axes from `axis` on.
- Scan before opset 9 has an axis of samples; models with it remain as they are.
- Upsample (to opset 9) and the Resize of opset 10 have no attributes for coordinates:
  output i is at i / scale. The converter omits those that say so in later opsets, where
  the default is another one. Nearest neighbor is the input before, but ONNX Runtime
  takes the one after along an axis of a Resize that shrinks.

The oracle runs the file itself, never the converted model.
"""

from collections.abc import Iterator, Mapping, Sequence

from firmwright.base.dtypes import Array
from firmwright.base.errors import UnsupportedError, UnsupportedItem
from firmwright.frontends.onnx.protobuf import Message, onnx_package

OPSET_MIN = 13
"""Operators of older opsets are accepted if their meaning is that of this opset."""
_CONVERTED_FROM = 7
"""ONNX Runtime implements no older operators, so there is no reference for them."""


def convert_opset(data: bytes, file: str) -> bytes:
    """Return the model in an opset that the importer reads; `data` if it is in one."""
    model = onnx_package().ModelProto.FromString(data)
    newer = with_current_opset(model, file)
    if newer is model:
        return data
    return bytes(newer.SerializeToString(deterministic=True))


def with_current_opset(model: Message, file: str) -> Message:
    """Return the model in OPSET_MIN if it is older and convertible, else `model`.

    Raises UnsupportedError for opsets without a reference.
    """
    standard = [item for item in model.opset_import if item.domain in ("", "ai.onnx")]
    version = standard[0].version if standard else OPSET_MIN
    if version >= OPSET_MIN:
        return model
    # The converter knows only the standard operators.
    if any(node.domain == "ai.onnx.ml" for node in model.graph.node):
        return model
    if 1 <= version < _CONVERTED_FROM:
        why = f"ONNX Runtime implements no operators older than opset {_CONVERTED_FROM}"
        hint = f"export the model for opset {OPSET_MIN} or newer."
        item = UnsupportedItem("OPSET", f"opset {version}", why)
        raise UnsupportedError([item], where=file, hint=hint)
    converter = onnx_package().version_converter
    shapes = onnx_package().shape_inference
    try:
        newer = converter.convert_version(model, OPSET_MIN)
    # Without an adapter, the converter, in C++, raises RuntimeError or its own errors.
    except (
        RuntimeError,
        ValueError,
        IndexError,
        TypeError,
        converter.ConvertError,
        shapes.InferenceError,
    ):
        return model
    graphs = list(_graphs(newer.graph))
    operators = {node.op_type for node in _nodes(graphs)}
    if version < 9 and "Scan" in operators:
        # The converter removes the axis of samples from the model's inputs.
        return model
    if version < 11 and not _complete_resizes(newer, version):
        return model
    for graph in graphs:
        _flatten_hardmaxes(graph)
    return newer


def _flatten_hardmaxes(graph: Message) -> None:
    """Replace each older Hardmax by that of a matrix of the axes from `axis` on."""
    make_node, nodes = onnx_package().helper.make_node, []
    for node in graph.node:
        if node.op_type == "Hardmax" and node.domain in ("", "ai.onnx"):
            axes = [item.i for item in node.attribute if item.name == "axis"]
            axis = axes[0] if axes else 1
            (x,), (y,) = node.input, node.output
            shape = f"{y}/shape"
            matrix = f"{y}/matrix"
            ones = f"{y}/ones"
            nodes += [
                make_node("Shape", [x], [shape]),
                make_node("Flatten", [x], [matrix], axis=axis),
                make_node("Hardmax", [matrix], [ones], axis=1),
                make_node("Reshape", [ones, shape], [y]),
            ]
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _complete_resizes(model: Message, version: int) -> bool:
    """Complete the Resize nodes of a model that was of opset `version`, 10 or older.

    Return False if a node has no equivalent: nearest neighbor with axes that grow and
    others that shrink, or with scales that are not constant.
    """
    graphs = list(_graphs(model.graph))
    constants: dict[str, Array] = {}
    for graph in graphs:
        constants.update(_constants(graph))
    for node in _nodes(graphs):
        if node.op_type != "Resize":
            continue
        nearest = _nearest_mode(node, constants) if version == 10 else "floor"
        if nearest is None:
            return False
        attrs = {
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": nearest,
        }
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
            single = [item.g] if item.HasField("g") else []
            for body in (*single, *item.graphs):
                yield from _graphs(body)


def _nodes(graphs: Sequence[Message]) -> Iterator[Message]:
    for graph in graphs:
        yield from graph.node


def _constants(graph: Message) -> Iterator[tuple[str, Array]]:
    to_array = onnx_package().numpy_helper.to_array
    for tensor in graph.initializer:
        yield tensor.name, to_array(tensor)
    for node in graph.node:
        for item in node.attribute:
            if node.op_type == "Constant" and item.name == "value":
                yield node.output[0], to_array(item.t)
