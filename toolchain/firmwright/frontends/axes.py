"""Axes of foreign operators, which may count from the end."""

from firmwright.base.errors import NotSupportedError


def normalize_axis(axis: object, rank: int) -> int:
    """Return the axis counted from 0; NotSupportedError if beyond `rank` dimensions."""
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise NotSupportedError(f"axis {axis} of {rank} dimensions")
    return axis % rank
