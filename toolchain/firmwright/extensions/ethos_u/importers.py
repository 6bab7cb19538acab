"""The importer of the operators `ethos-u` that Vela writes."""

from collections.abc import Mapping

from firmwright.base.errors import NotSupportedError
from firmwright.extensions.ethos_u.attributes import EthosUAttrs
from firmwright.extensions.ethos_u.vela_output import ETHOS_U
from firmwright.frontends.tflite.node_context import (
    ImportContext,
    ImportedCall,
    Importer,
    checked_int_option,
    int_option,
)


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


IMPORTERS: Mapping[str, Importer] = {ETHOS_U: Importer("ethos_u", _command_stream)}
