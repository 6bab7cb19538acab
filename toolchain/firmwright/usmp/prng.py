"""A small random generator (Marsaglia's 32-bit xorshift, shifts 13, 17, 5).

Plans must be equal on every machine and Python version, so the sequence is fixed here.
"""

from __future__ import annotations

_MASK = 0xFFFFFFFF


class Xorshift32:
    """Numbers from a non-zero seed."""

    __slots__ = ("_state",)

    def __init__(self, seed: int = 0x2545F491) -> None:
        self._state = seed & _MASK or 1

    def randrange(self, end: int) -> int:
        """A number in [0, end); the slight bias of the remainder does not matter to a search."""
        x = self._state
        x ^= (x << 13) & _MASK
        x ^= x >> 17
        x ^= (x << 5) & _MASK
        self._state = x
        return x % end
