"""Functions that build a kernel of one layer by the words of its schedule."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from firmwright.lower.kernel_texts import words_of
from firmwright.ops.schedule import LoweringCandidate

KernelMaker: TypeAlias = Callable[[str], LoweringCandidate | None]
"""Builds the kernel with a schedule and configuration, or returns None."""


def has_same_code_in(
    candidate: LoweringCandidate, makers: Iterable[KernelMaker]
) -> bool:
    """Return whether every maker builds the candidate's kernel with the same code."""
    for build in makers:
        other = build(words_of(candidate))
        if other is None or not other.has_same_code(candidate):
            return False
    return True
