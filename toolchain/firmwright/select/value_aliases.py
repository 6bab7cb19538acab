"""Aliases between values: views, and values after `elide-copies` removed their copies.

Each alias is a part of another value, which may itself be an alias.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from firmwright.ir.graph.nodes import Call, Value
from firmwright.ir.graph.opdef import SUBVIEW_OFFSETS, SUBVIEWS_OF


@dataclass(frozen=True, slots=True)
class Alias:
    """A part of the value named `whole`, from element `offset`."""

    whole: str
    offset: int


def aliases_input(call: Call) -> bool:
    """Return whether the outputs of the call alias its input, as for a view."""
    return call.attrs.get(SUBVIEWS_OF, "input") == "input"


def find_aliases(calls: Iterable[Call]) -> dict[str, Alias]:
    """Return the aliases that calls without a kernel define, in the order of the calls."""
    aliases: dict[str, Alias] = {}
    for call in calls:
        wholes, parts = (call.inputs, call.outputs)
        if not aliases_input(call):
            wholes, parts = call.outputs, call.variables
        whole = wholes[0]
        assert whole is not None
        offsets = cast("tuple[int, ...]", call.attrs.get(SUBVIEW_OFFSETS, (0,)))
        for part, offset in zip(parts, offsets, strict=True):
            aliases[part.name] = Alias(whole.name, offset)
    return aliases


def alias_chain(placed: Mapping[str, Alias], name: str) -> list[Alias]:
    chain = []
    while name in placed:
        chain.append(placed[name])
        name = placed[name].whole
    return chain


def known_alignment(placed: Mapping[str, Alias], value: Value, most: int) -> int:
    """Return the alignment of a value's address, given that memory is aligned to `most`."""
    offsets = [place.offset for place in alias_chain(placed, value.name)]
    return math.gcd(most, *(offset * value.type.dtype.size_bytes for offset in offsets))
