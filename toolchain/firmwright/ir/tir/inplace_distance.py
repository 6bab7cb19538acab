"""In-place analysis: at which distances a kernel's output must not overlap its input.

A distance is the offset of the output less that of the input.

A write before a read excludes the differences from read.start - write.end to read.end -
write.start. The constraint is the hull of all such pairs in the access trace (decision
0011).
"""

from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from firmwright.ir import tir
from firmwright.ir.tir.access_trace import (
    EVENTS_MAX,
    AccessLog,
    AccessTracer,
    UnknownAccessError,
)
from firmwright.ir.tir.expr_evaluation import Ints
from firmwright.ir.tir.kernel_code import code_of
from firmwright.ir.tir.plan import OffsetConstraint

_FAR = 1 << 60
_ANALYSES_KEPT = 512
"""Kept analyses of kernels, for later compilations of the same model."""
_CLOSE_FRACTION = 4
"""A hull with an end nearer to 0 than the buffer size / this is not refined."""


def find_offset_constraints(
    func: tir.PrimFunc, source: str, result: str
) -> tuple[OffsetConstraint[str], ...] | None:
    """Return constraints on offset(`result`) - offset(`source`); None means disjoint.

    A kernel of one intrinsic has the excluded distances in its attribute
    `inplace_distances`.
    """
    buffers = {p.name: p.value for p in func.params if isinstance(p.value, tir.Buffer)}
    x, y = buffers[source], buffers[result]
    # The C compiler may reorder accesses of different types, unless one is a byte type.
    if x.dtype != y.dtype and 1 not in (x.dtype.size_bytes, y.dtype.size_bytes):
        return None
    match func.attrs.get("inplace_distances"):
        case (int(lo), int(hi)):
            return (OffsetConstraint(source, result, lo, hi),)
    return _constraints_of(code_of(func.body), x, y)


@lru_cache(_ANALYSES_KEPT)
def _constraints_of(
    code: tir.Stmt, x: tir.Buffer, y: tir.Buffer
) -> tuple[OffsetConstraint[str], ...] | None:
    try:
        trace = AccessTracer(x.name, y.name, code)
        log = trace.run()
        hull = _hull(log, np.argsort(log.time, kind="stable"))
        if hull is None:
            return ()
        lo, hi = max(hull[0], -y.size_bytes), min(hull[1], x.size_bytes)
        whole = OffsetConstraint(x.name, y.name, lo, hi)
        return _per_channel_constraints(trace, x, y, whole) or (whole,)
    except UnknownAccessError:
        return None


def excluded_distances(
    reads: tuple[Ints, Ints], writes: tuple[Ints, Ints]
) -> tuple[int, int]:
    """Return the excluded distances of steps that each read a range, then write one.

    `reads` and `writes` are the first and end byte of each step.
    """
    starts = np.stack((reads[0], writes[0]), axis=1).reshape(-1)
    ends = np.stack((reads[1], writes[1]), axis=1).reshape(-1)
    times = np.arange(2 * len(reads[0]))
    log = AccessLog(times, starts, ends, times % 2 == 1)
    return _hull(log, log.time) or (0, 0)


def _per_channel_constraints(
    trace: AccessTracer, x: tir.Buffer, y: tir.Buffer, whole: OffsetConstraint[str]
) -> tuple[OffsetConstraint[str], ...] | None:
    """Refine the constraint of a kernel that processes one channel at a time.

    At a difference of whole pixels, only bytes of the same channel coincide. Returns
    None if that does not help.
    """
    pixel = y.shape[-1] * y.dtype.size_bytes if y.shape else 0
    if pixel < 2 or not x.shape or x.shape[-1] * x.dtype.size_bytes != pixel:
        return None
    low_enough = whole.lo <= -y.size_bytes // _CLOSE_FRACTION
    high_enough = whole.hi >= x.size_bytes // _CLOSE_FRACTION
    if not (low_enough and high_enough):
        return None
    if not trace.is_exact or trace.max_events() > EVENTS_MAX:
        return None
    inner = _hull_by_residue(trace.run(pixel), pixel)
    outer = replace(whole, modulus=pixel)
    if inner is None:
        return (outer,)
    if inner[0] < whole.lo + pixel and inner[1] > whole.hi - pixel:
        return None
    return OffsetConstraint(x.name, y.name, *inner), outer


def _hull(log: AccessLog, order: Ints) -> tuple[int, int] | None:
    """Return the hull of the accesses at `order`, indices sorted by time."""
    log = log.select(order)
    # At each access, of the writes up to it: the greatest end, and the least start.
    highest = np.maximum.accumulate(np.where(log.write, log.end, -_FAR))
    lowest = np.minimum.accumulate(np.where(log.write, log.start, _FAR))
    late = ~log.write & (highest > -_FAR)
    if not late.any():
        return None
    lo = int((log.start[late] - highest[late]).min())
    hi = int((log.end[late] - lowest[late]).max())
    return (lo, hi) if hi - lo > 1 else None


def _hull_by_residue(log: AccessLog, pixel: int) -> tuple[int, int] | None:
    """Return the hull of pairs of single bytes with equal position modulo `pixel`."""
    split = _single_bytes(log)
    residue = split.start % pixel
    order = np.lexsort((split.time, residue))
    limits = np.searchsorted(residue[order], np.arange(pixel + 1))
    hulls: list[tuple[int, int]] = []
    for first, end in pairwise(limits):
        hull = _hull(split, order[first:end])
        if hull is not None:
            hulls.append(hull)
    if not hulls:
        return None
    return min(lo for lo, _ in hulls), max(hi for _, hi in hulls)


def _single_bytes(log: AccessLog) -> AccessLog:
    sizes = log.end - log.start
    if int(sizes.sum()) > EVENTS_MAX:
        raise UnknownAccessError
    # An access to 3 bytes from 8 becomes accesses to the bytes 8, 9 and 10.
    index = np.repeat(np.arange(len(sizes)), sizes)
    start = log.start[index] + np.arange(len(index)) - (np.cumsum(sizes) - sizes)[index]
    return AccessLog(log.time[index], start, start + 1, log.write[index])
