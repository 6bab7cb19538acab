"""Options of custom operators, which no schema vouches for: looked up by name, or refused."""

from __future__ import annotations

from firmwright.ir.graph.opdef import ImportContext, NotSupportedError


def int_option(context: ImportContext, name: str) -> int:
    """A whole number or flag that must be there."""
    value = context.node.options.get(name)
    if not isinstance(value, int):
        raise NotSupportedError(f"options without a number {name}")
    return int(value)


def int_options(context: ImportContext, *names: str) -> dict[str, int]:
    """Several of them, by name."""
    return {name: int_option(context, name) for name in names}
