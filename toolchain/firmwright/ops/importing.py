"""Checks of foreign nodes before their importer reads them.

Containers guarantee that indices are in range, but not that an operator has the inputs it needs.
"""

from __future__ import annotations

from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph.op_import import ImportContext


def require_tensors(context: ImportContext, inputs: int, *, outputs: int = 1) -> None:
    """Raise NotSupportedError unless the node has `inputs` inputs and exactly `outputs` outputs."""
    if len(context.inputs) < inputs or None in context.inputs[:inputs]:
        raise NotSupportedError(f"a node without its {inputs} inputs")
    if len(context.outputs) != outputs:
        raise NotSupportedError(f"a node with {len(context.outputs)} outputs")
