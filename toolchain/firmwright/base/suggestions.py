"""Suggestions for misspelled names."""

import difflib
from collections.abc import Collection, Sequence

_MAX_LISTED = 8
_CLOSEST = 3
"""The number of names listed if there are more."""
_FUSED = ";"
"""Between the names of the tensors of a fused operator, as TFLite converters join them.
"""


def suggest_name(name: str, names: Collection[str]) -> str:
    """Return the name that `name` is a part of, or else the most similar of `names`.

    A part begins at the start of a path's component, also inside of a fused name.
    Without a similar name, return a list.
    """
    listed = sorted(names)
    begun = _names_begun(name, listed)
    if begun:
        return begun[0] if len(begun) == 1 else _list(begun, begun)
    similar = difflib.get_close_matches(name, listed, n=1, cutoff=0.6)
    if similar:
        return similar[0]
    inside = [other for other in listed if name in other]
    close = difflib.get_close_matches(name, listed, n=_CLOSEST, cutoff=0)
    return _list(listed, list(dict.fromkeys([*inside, *close])))


def _names_begun(name: str, names: Sequence[str]) -> list[str]:
    """Return the names with a component that begins with one of the parts of `name`."""
    starts = [f"/{part}" for part in name.split(_FUSED) if part]
    begun: list[str] = []
    for other in names:
        path = "/" + other.replace(_FUSED, "/")
        if any(start in path for start in starts):
            begun.append(other)
    return begun


def _list(names: Sequence[str], preferred: Sequence[str]) -> str:
    """Return `names`, or if they are many, the first of `preferred`."""
    listed = names if len(names) <= _MAX_LISTED else preferred[:_CLOSEST]
    more = ", ..." if len(names) > len(listed) else ""
    return f"one of {', '.join(listed)}{more}" if listed else ""
