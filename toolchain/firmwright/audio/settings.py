"""Parts of the record of audio features: window, noise reduction and gain control."""

import enum
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT32
from firmwright.base.errors import UsageError


def require(is_valid: bool, what: str, hint: str) -> None:
    """Raise UsageError unless a setting is valid; the hint gives what is possible."""
    if not is_valid:
        raise UsageError(f"{what} is not possible.", hint=hint)


def require_stride(stride: int) -> None:
    hint = "an integer of at least 1: how many hops there are for a run of the network."
    is_possible = isinstance(stride, int | np.integer) and 0 < stride <= INT32.max
    require(is_possible, f"a stride of {stride} hops", hint)


class FrameWindow(enum.Enum):
    """The weights of a frame, symmetric; the value is the constant part."""

    RECTANGLE = 1.0
    HANN = 0.5
    HAMMING = 0.54


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseReduction:
    """Subtraction of an estimate of the noise in each channel.

    The estimate moves by `even` or `odd` (of the channel) of its distance to a new
    value in each hop, and `remaining` of the signal is left at least. All are fractions
    of 1.
    """

    even: float = 0.025
    odd: float = 0.06
    remaining: float = 0.05

    def __post_init__(self) -> None:
        for share in (self.even, self.odd, self.remaining):
            require(0 <= share <= 1, f"the share {share}", "a number from 0 to 1.")


@dataclass(frozen=True, slots=True, kw_only=True)
class GainControl:
    """Division by (noise + offset)^strength in each channel (PCAN)."""

    strength: float = 0.95
    offset: float = 80.0

    def __post_init__(self) -> None:
        is_valid = self.offset > 0 and self.strength >= 0
        hint = "an offset above 0 and a strength of at least 0."
        require(is_valid, f"the gain has no value without noise: {self}", hint)
