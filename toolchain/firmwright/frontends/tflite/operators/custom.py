"""Operators that a plug-in implements: custom ones, and others without an importer."""

import json

from firmwright.frontends.tflite.node_context import ImportContext, ImportedCall
from firmwright.ir.graph.attributes.control import CustomAttrs

CUSTOM_PREFIX = "custom:"


def import_custom(context: ImportContext) -> ImportedCall:
    """Keep a custom operator's options, or TFLite's own as JSON."""
    node = context.node
    data = node.custom_options
    if not node.op.startswith(CUSTOM_PREFIX):
        data = json.dumps(node.options, sort_keys=True, default=str).encode()
    name = node.op.removeprefix(CUSTOM_PREFIX)
    attrs = CustomAttrs(domain="", name=name, data=data.hex())
    return ImportedCall("custom", attrs, tuple(range(len(node.inputs))))
