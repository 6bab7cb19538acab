"""Conversion of models of older opsets to the oldest one that the importers know.

The oracle runs the file itself, never the converted model.
"""

from firmwright.base.errors import NotSupportedError, UnsupportedError, UnsupportedItem
from firmwright.frontends.onnx.graph_facts import GraphFacts
from firmwright.frontends.onnx.node_schemas import find_schema, own_domain
from firmwright.frontends.onnx.older_operators import OPSET_MIN, rewritten_nodes
from firmwright.frontends.onnx.protobuf import Message, onnx_package
from firmwright.frontends.onnx.shape_inference import bodies

_IMPLEMENTED_FROM = 7
"""ONNX Runtime implements older operators only if this opset has them unchanged."""


def convert_opset(data: bytes, file: str) -> bytes:
    """Return the model in an opset that the importers know; `data` if it is in one."""
    model = onnx_package().ModelProto.FromString(data)
    newer = with_current_opset(model, file)
    if newer is model:
        return data
    return bytes(newer.SerializeToString(deterministic=True))


def with_current_opset(model: Message, file: str) -> Message:
    """Return the model in OPSET_MIN if it is older, else `model`.

    Raises UnsupportedError for the first node that has no reference or no equivalent.
    """
    standard = [item for item in model.opset_import if item.domain in ("", "ai.onnx")]
    version = standard[0].version if standard else OPSET_MIN
    if version >= OPSET_MIN or version < 1:
        return model
    newer = onnx_package().ModelProto()
    newer.CopyFrom(model)
    facts, nodes = GraphFacts(model), list[Message]()
    for node in newer.graph.node:
        try:
            _check_reference(node, version)
            nodes.extend(rewritten_nodes([node], version, facts))
        except NotSupportedError as error:
            name = next(iter(node.output), "")
            item = UnsupportedItem(node.op_type, node.name or name, str(error))
            raise UnsupportedError([item], where=file) from error
    del newer.graph.node[:]
    newer.graph.node.extend(nodes)
    for entry in newer.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = OPSET_MIN
    return newer


def _check_reference(node: Message, version: int) -> None:
    """Raise NotSupportedError if ONNX Runtime has no operator of that opset."""
    for item in node.attribute:
        for graph in bodies(item):
            for inner in graph.node:
                _check_reference(inner, version)
    if version >= _IMPLEMENTED_FROM or own_domain(node):
        return
    schemas = [find_schema(node, each) for each in (version, _IMPLEMENTED_FROM)]
    if len({schema.since_version if schema else 0 for schema in schemas}) > 1:
        raise NotSupportedError(
            f"ONNX Runtime does not implement it as it was in opset {version}; export "
            f"the model for opset {OPSET_MIN} or newer"
        )
