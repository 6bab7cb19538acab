"""The recursion limit for deep expression trees.

The AOT main has up to one nesting level per tensor, and rewrites take up to three frames per level.
The limit is not higher because it also bounds recursive C functions, such as the JSON reader, with
larger stack frames.
"""

from __future__ import annotations

import sys

FRAMES_MAX = 1 << 13
"""Nested Python frames: enough for models of about two thousand tensors."""


def raise_recursion_limit() -> None:
    """Raise Python's recursion limit for the whole process.

    The limit is never lowered again, because another thread may be inside a deep tree.
    """
    sys.setrecursionlimit(max(sys.getrecursionlimit(), FRAMES_MAX))
