"""Integer division and rounding towards positive infinity."""


def divide_up(value: int, divisor: int) -> int:
    """Return the least integer that is at least `value / divisor`."""
    return -(-value // divisor)


def round_up(value: int, step: int) -> int:
    """Return the least multiple of `step` that is at least `value`."""
    return -(-value // step) * step
