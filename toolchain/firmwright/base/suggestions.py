"""Suggestions for misspelled names."""

import difflib
from collections.abc import Collection

_MAX_LISTED = 8


def suggest_name(name: str, names: Collection[str]) -> str:
    """Return the most similar of `names`, or a list of them if none is similar."""
    similar = difflib.get_close_matches(name, sorted(names), n=1, cutoff=0.6)
    if similar:
        return similar[0]
    listed = sorted(names)[:_MAX_LISTED]
    more = ", ..." if len(names) > len(listed) else ""
    return f"one of {', '.join(listed)}{more}" if listed else ""
