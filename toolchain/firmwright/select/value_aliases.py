"""Which values lie in which others, and where: calls without a kernel say so.

In: the calls of a graph for which no kernel was chosen: views, and those that the pass `windows`
marked. Out: for each part the whole it lies in. A whole may be a part itself.
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
    """The value named `whole`, from element `offset` on."""

    whole: str
    offset: int


def aliases_input(call: Call) -> bool:
    """Whether the outputs of such a call lie in its input, as those of a view do."""
    return call.attrs.get(SUBVIEWS_OF, "input") == "input"


def find_aliases(calls: Iterable[Call]) -> dict[str, Alias]:
    """Where the parts of each call are, in the order of the calls."""
    found: dict[str, Alias] = {}
    for call in calls:
        wholes, parts = (call.inputs, call.outputs)
        if not aliases_input(call):
            wholes, parts = call.outputs, call.variables
        whole = wholes[0]
        assert whole is not None
        offsets = cast("tuple[int, ...]", call.attrs.get(SUBVIEW_OFFSETS, (0,)))
        for part, offset in zip(parts, offsets, strict=True):
            found[part.name] = Alias(whole.name, offset)
    return found


def alias_chain(placed: Mapping[str, Alias], name: str) -> list[Alias]:
    """The place of a value, that of the value it lies in, and so on."""
    found = []
    while name in placed:
        found.append(placed[name])
        name = placed[name].whole
    return found


def known_alignment(placed: Mapping[str, Alias], value: Value, most: int) -> int:
    """What a value's address is a multiple of where memory is aligned to `most`."""
    offsets = [place.offset for place in alias_chain(placed, value.name)]
    return math.gcd(most, *(offset * value.type.dtype.size_bytes for offset in offsets))
