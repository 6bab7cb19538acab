"""How deep trees may be: a model's main is as deep as the model has tensors.

Functions over trees call themselves for each level, three calls deep where they rebuild it.
Python's own limit would end them at some three hundred tensors. Functions in C, such as the reader
of JSON, stop at the same limit and take more of the stack for each level: so it is not higher.
"""

from __future__ import annotations

import sys

FRAMES_MAX = 1 << 13
"""Of functions in each other: enough for two thousand tensors."""


def raise_recursion_limit() -> None:
    """Raises Python's limit, of all threads; it stays, for another thread may be in such a tree."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), FRAMES_MAX))
