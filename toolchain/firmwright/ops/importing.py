"""How many tensors a foreign node must have before its importer may look at them.

Containers promise that indices are in range, not that an operator has the inputs it needs.
"""

from __future__ import annotations

from firmwright.ir.graph.opdef import ImportContext, NotSupportedError


def require_tensors(context: ImportContext, inputs: int, *, outputs: int = 1) -> None:
    """At least `inputs` inputs, none of those absent, and so many outputs."""
    if len(context.inputs) < inputs or None in context.inputs[:inputs]:
        raise NotSupportedError(f"a node without all of its {inputs} inputs")
    if len(context.outputs) != outputs:
        raise NotSupportedError(f"a node with {len(context.outputs)} outputs")
