"""The recursion limit for deep expression trees.

The AOT main has up to one nesting level per tensor, and rewrites take up to three frames per level.
A higher limit would allow recursive C functions to overflow the stack.
"""

import sys

FRAMES_MAX = 1 << 13
"""Nested Python frames: enough for models of about two thousand tensors."""


def raise_recursion_limit() -> None:
    """Raise Python's recursion limit permanently for the whole process."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), FRAMES_MAX))
