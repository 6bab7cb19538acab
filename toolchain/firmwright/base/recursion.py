"""The recursion limit for deep expression trees.

The AOT main of a model nests as deep as the model has tensors, and tree rewrites recurse up to
three Python frames per level. Python's default limit would stop at about three hundred tensors. The
limit is not higher because functions in C, such as the JSON reader, obey it as well and use more
stack.
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
