"""Hints for analyzers of the generated C, as annotations in ACSL (decision 0109).

Hints are comments. They assume nothing: an analyzer that follows them proves the same
claims, with narrower intervals.
"""

from firmwright.ir import tir
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.tir.traversal import (
    child_statements,
    declared_buffers,
    statements,
)

_ITERATIONS_MAX = 8192
"""Iterations of a nest that an analyzer follows one by one at most."""
_UNKNOWN_ITERATIONS = 1024
"""Assumed iterations of a loop whose extent is an argument of the kernel."""


def unrolled_iterations(loop: tir.For, intrinsics: IntrinsicTable) -> int:
    """Return how many iterations of `loop` must be followed one by one; 0 for none.

    An analysis by intervals merges the iterations of a loop. A sum in a register then
    grows without limit, though the loop ends, and code that reads its own loop counts
    from a table reads them at a place that is not known. Only such loops need it.
    """
    if not (_carries_registers(loop.body) or _reads_counts(loop.body, intrinsics)):
        return 0
    return _iterations(loop) if _nest_iterations(loop) <= _ITERATIONS_MAX else 0


def _carries_registers(body: tir.Stmt) -> bool:
    """Return whether `body` writes a register that is declared outside of it."""
    declared = declared_buffers(body)
    for part in statements(body):
        if not isinstance(part, tir.BufferStore) or part.buffer.scope != "reg":
            continue
        if part.buffer.name not in declared:
            return True
    return False


def _reads_counts(body: tir.Stmt, intrinsics: IntrinsicTable) -> bool:
    """Return whether `body` calls, outside of loops, code whose constants count loops.

    A loop around it need not be followed: each of its iterations reads the same rows.
    """
    if isinstance(body, tir.Evaluate):
        return intrinsics[body.call.name].has_coded_loops
    if isinstance(body, tir.For):
        return False
    return any(_reads_counts(part, intrinsics) for part in child_statements(body))


def _nest_iterations(loop: tir.For) -> int:
    """Return the iterations of `loop` times those of the longest nest in it."""
    inner = 1
    for part in statements(loop.body):
        if isinstance(part, tir.For):
            inner = max(inner, _nest_iterations(part))
    return _iterations(loop) * inner


def _iterations(loop: tir.For) -> int:
    extent = loop.extent
    return extent.value if isinstance(extent, tir.IntImm) else _UNKNOWN_ITERATIONS
