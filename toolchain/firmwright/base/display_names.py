"""Names for tables and drawings, where the long ones of converters take all room.

C identifiers, JSON and files keep the names of the model.
"""

from collections.abc import Sequence
from typing import Final

NAME_LENGTH_MAX: Final = 24
"""Converters join the names of layers that they fuse; people write shorter ones."""


def format_shape(shape: Sequence[int]) -> str:
    """Return sizes such as `1x3x?`, where a negative size is open."""
    sizes = ["?" if size < 0 else str(size) for size in shape]
    return "x".join(sizes) or "scalar"


def display_name(name: str, kind: str, index: int, shape: Sequence[int]) -> str:
    """Return `name`, or kind, number and shape without batch if it is a long one."""
    if len(name) <= NAME_LENGTH_MAX:
        return name
    batch = 1 if len(shape) > 1 and shape[0] == 1 else 0
    return f"{kind} {index}, {format_shape(shape[batch:])}"
