"""Checked access to the tensors and options of foreign nodes.

Readers guarantee neither that an operator has the inputs it needs nor that a custom operator has
the expected options.
"""

from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph.op_import import ImportContext


def require_tensors(context: ImportContext, inputs: int, *, outputs: int = 1) -> None:
    """Raise NotSupportedError unless the node has `inputs` inputs and exactly `outputs` outputs."""
    if len(context.inputs) < inputs or None in context.inputs[:inputs]:
        raise NotSupportedError(f"a node without its {inputs} inputs")
    if len(context.outputs) != outputs:
        raise NotSupportedError(f"a node with {len(context.outputs)} outputs")


def int_option(context: ImportContext, name: str) -> int:
    """Return a required integer or flag."""
    value = context.node.options.get(name)
    if not isinstance(value, int):
        raise NotSupportedError(f"options without the integer {name}")
    return int(value)


def int_options(context: ImportContext, *names: str) -> dict[str, int]:
    """Return several required integers, by name."""
    return {name: int_option(context, name) for name in names}
