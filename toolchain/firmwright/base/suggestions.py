"""Suggestions for misspelled names."""

import difflib
from collections.abc import Collection

_MAX_LISTED = 8
_CLOSEST = 3
"""The number of names listed if there are more."""


def suggest_name(name: str, names: Collection[str]) -> str:
    """Return the most similar of `names`, or a list of them if none is similar."""
    similar = difflib.get_close_matches(name, sorted(names), n=1, cutoff=0.6)
    if similar:
        return similar[0]
    listed = sorted(names)
    if len(listed) > _MAX_LISTED:
        inside = [other for other in listed if name in other]
        close = difflib.get_close_matches(name, listed, n=_CLOSEST, cutoff=0)
        listed = list(dict.fromkeys([*inside, *close]))[:_CLOSEST]
    more = ", ..." if len(names) > len(listed) else ""
    return f"one of {', '.join(listed)}{more}" if listed else ""
