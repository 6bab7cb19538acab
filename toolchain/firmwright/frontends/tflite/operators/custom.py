"""Custom operators that a plug-in implements."""

from firmwright.frontends.tflite.node_context import ImportContext, ImportedCall
from firmwright.ir.graph.attributes.control import CustomAttrs


def import_custom(context: ImportContext) -> ImportedCall:
    node = context.node
    name = node.op.removeprefix("custom:")
    attrs = CustomAttrs(domain="", name=name, data=node.custom_options.hex())
    return ImportedCall("custom", attrs, tuple(range(len(node.inputs))))
