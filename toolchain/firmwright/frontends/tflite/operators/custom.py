"""Custom operators of single runtimes and tools, and those that a plug-in implements."""

from collections.abc import Mapping

from firmwright.base.errors import NotSupportedError
from firmwright.frontends.tflite.node_context import (
    ImportContext,
    ImportedCall,
    Importer,
    checked_int_option,
    int_option,
)
from firmwright.ir.graph.attributes.control import CustomAttrs, EthosUAttrs


def _command_stream(context: ImportContext) -> ImportedCall:
    if context.constants[0] is None or context.constants[1] is None:
        raise NotSupportedError("a command stream or weights that are not constant")
    offsets = context.node.options["offsets"]
    assert isinstance(offsets, tuple)
    attrs = EthosUAttrs(
        arena_bytes=int_option(context, "arena_bytes"),
        fast_bytes=int_option(context, "fast_bytes"),
        offsets=tuple(checked_int_option(offset) for offset in offsets),
    )
    return ImportedCall("ethos_u", attrs, tuple(range(len(context.inputs))))


def import_custom(context: ImportContext) -> ImportedCall:
    node = context.node
    name = node.op.removeprefix("custom:")
    attrs = CustomAttrs(domain="", name=name, data=node.custom_options.hex())
    return ImportedCall("custom", attrs, tuple(range(len(node.inputs))))


IMPORTERS: Mapping[str, Importer] = {
    "custom:ethos-u": Importer("ethos_u", _command_stream),
}
