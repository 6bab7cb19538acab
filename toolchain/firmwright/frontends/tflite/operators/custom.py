"""Custom operators of single runtimes and tools, and those that a plug-in implements."""

from collections.abc import Mapping

from firmwright.base.errors import NotSupportedError
from firmwright.frontends.tflite.node_context import ImportContext, ImportedCall, Importer
from firmwright.ir.core import Attrs

_COMMAND_STREAM_OPTIONS = ("arena_bytes", "fast_bytes", "offsets")


def _command_stream(context: ImportContext) -> ImportedCall:
    if context.constants[0] is None or context.constants[1] is None:
        raise NotSupportedError("a command stream or weights that are not constant")
    attrs: Attrs = {name: context.node.options[name] for name in _COMMAND_STREAM_OPTIONS}
    return ImportedCall("ethos_u", dict(attrs), tuple(range(len(context.inputs))))


def import_custom(context: ImportContext) -> ImportedCall:
    node = context.node
    name = node.op.removeprefix("custom:")
    attrs = {"domain": "", "name": name, "data": node.custom_options.hex()}
    return ImportedCall("custom", attrs, tuple(range(len(node.inputs))))


IMPORTERS: Mapping[str, Importer] = {
    "custom:ethos-u": Importer("ethos_u", _command_stream),
}
