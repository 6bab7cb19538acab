"""The recursion limit for deep expression trees.

The AOT main nests up to one level per tensor, and rewrites take up to four frames per
level. Recursive C functions could overflow the usual stack, so `call_with_stack` runs
in a thread with a large one.
"""

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

FRAMES_MAX = 1 << 13
"""Nested Python frames: enough for models of about two thousand tensors."""
_LARGE_FRAMES_MAX = 1 << 16
_LARGE_STACK_BYTES = 1 << 28

_Result = TypeVar("_Result")


def raise_recursion_limit() -> None:
    """Raise Python's recursion limit permanently for the whole process."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), FRAMES_MAX))


def call_with_stack(function: Callable[[], _Result]) -> _Result:
    """Call `function` in a thread with a stack for trees of ten thousand levels."""
    results: list[_Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
            errors.append(error)

    frames = sys.getrecursionlimit()
    stack_bytes = threading.stack_size(_LARGE_STACK_BYTES)
    try:
        sys.setrecursionlimit(max(frames, _LARGE_FRAMES_MAX))
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
    finally:
        threading.stack_size(stack_bytes)
    thread.join()
    sys.setrecursionlimit(frames)
    if errors:
        raise errors[0]
    return results[0]
