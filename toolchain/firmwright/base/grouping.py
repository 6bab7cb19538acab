"""Collection of values by key."""

from collections.abc import Iterable
from typing import TypeVar

_Key = TypeVar("_Key")
_Item = TypeVar("_Item")


def group_pairs(pairs: Iterable[tuple[_Key, _Item]]) -> dict[_Key, list[_Item]]:
    """Return the items of each key; keys and items remain in order."""
    groups: dict[_Key, list[_Item]] = {}
    for key, item in pairs:
        groups.setdefault(key, []).append(item)
    return groups
