"""Typed access to the options of custom operators, which have no schema."""

from __future__ import annotations

from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph.op_import import ImportContext


def int_option(context: ImportContext, name: str) -> int:
    """Return a required integer or flag."""
    value = context.node.options.get(name)
    if not isinstance(value, int):
        raise NotSupportedError(f"options without the integer {name}")
    return int(value)


def int_options(context: ImportContext, *names: str) -> dict[str, int]:
    """Return several required integers by name."""
    return {name: int_option(context, name) for name in names}
