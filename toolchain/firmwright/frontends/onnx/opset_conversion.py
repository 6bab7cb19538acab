"""Conversion of models of older opsets to the oldest one that the importers know.

The oracle runs the file itself, never the converted model.
"""

from firmwright.base.errors import NotSupportedError, UnsupportedError, UnsupportedItem
from firmwright.frontends.onnx.graph_facts import GraphFacts
from firmwright.frontends.onnx.older_operators import OPSET_MIN, rewritten_nodes
from firmwright.frontends.onnx.protobuf import Message, onnx_package

_CONVERTED_FROM = 7
"""ONNX Runtime implements no older operators, so there is no reference for them."""


def convert_opset(data: bytes, file: str) -> bytes:
    """Return the model in an opset that the importers know; `data` if it is in one."""
    model = onnx_package().ModelProto.FromString(data)
    newer = with_current_opset(model, file)
    if newer is model:
        return data
    return bytes(newer.SerializeToString(deterministic=True))


def with_current_opset(model: Message, file: str) -> Message:
    """Return the model in OPSET_MIN if it is older, else `model`.

    Raises UnsupportedError for opsets without a reference, and for the first node that
    has no equivalent.
    """
    standard = [item for item in model.opset_import if item.domain in ("", "ai.onnx")]
    version = standard[0].version if standard else OPSET_MIN
    if version >= OPSET_MIN or version < 1:
        return model
    if version < _CONVERTED_FROM:
        why = f"ONNX Runtime implements no operators older than opset {_CONVERTED_FROM}"
        hint = f"export the model for opset {OPSET_MIN} or newer."
        item = UnsupportedItem("OPSET", f"opset {version}", why)
        raise UnsupportedError([item], where=file, hint=hint)
    newer = onnx_package().ModelProto()
    newer.CopyFrom(model)
    facts, nodes = GraphFacts(model), list[Message]()
    for node in newer.graph.node:
        try:
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
