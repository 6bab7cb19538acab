"""The names of the passes of a compilation in pipeline order.

The stage table of docs/developing/architecture.md describes the form of a module after
each.
"""

from firmwright.base.text_sections import read_sections

_TABLE = read_sections(__file__, ".txt")["passes"]
_ROWS = [line.split() for line in _TABLE.splitlines()]
PASS_NAMES = tuple(name for name, *_ in _ROWS)
SELECTABLE_TIR_PASSES = frozenset(name for name, *kind in _ROWS if kind == ["tir"])
SELECTABLE_PASSES = frozenset(name for name, *kind in _ROWS if kind)
"""Passes that work function by function; a target kind may opt out of them."""
