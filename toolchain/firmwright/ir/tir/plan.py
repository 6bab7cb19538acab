"""Input and output of memory planners: buffers, offset constraints and the plan.

Times are positions in the structured order of the AOT main. Offsets and sizes are
bytes. Two buffers that are live at the same time are related by `OffsetConstraint`s on
the difference d = offset(b) - offset(a). Forbidden differences (x) and allowed ones
(o):

    d =        -size(b)         0         size(a)
                   |            |            |
    disjoint    ooo(xxxxxxxxxxxxxxxxxxxxxxxxx)ooo  lo = -size(b), hi = size(a)
    in place    oooooooooooooooo(xxxxxxxxxxxx)ooo  lo = 0: b at the start of a, or below
    overlapping oooooooooo(xxxxxxxxxxxxxxxxxx)ooo  lo < 0: b starts some bytes below a
    periodic    ooo(oxxxoxxxoxxxoxxxoxxxoxxxo)ooo  modulus 4: any whole number of pixels
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic, Literal, TypeAlias, TypeVar

from firmwright.ir.core import PoolInfo

OVERLAYS_ATTR = "overlays"
"""Kernel attribute: (parameter, workspace, offset) where a tensor needs no copy."""
BufferKind: TypeAlias = Literal[
    "activation", "input", "output", "scratch", "ring", "state", "const"
]


@dataclass(frozen=True, slots=True)
class LiveRange:
    """Half-open interval of time in which a buffer holds a value still needed."""

    first: int
    end: int

    def overlaps(self, other: LiveRange) -> bool:
        return self.first < other.end and other.first < self.end


@dataclass(frozen=True, slots=True)
class BufferInfo:
    """A buffer to place; `pools` lists candidates in order of preference."""

    name: str
    size_bytes: int
    alignment: int
    live: tuple[LiveRange, ...]
    kind: BufferKind
    pools: tuple[str, ...]

    def overlaps_in_time(self, other: BufferInfo) -> bool:
        return any(mine.overlaps(theirs) for mine in self.live for theirs in other.live)


BufferKey = TypeVar("BufferKey", str, int)
"""A buffer's name, or its number inside a planner."""


CONSTRAINTS_KEPT = 1 << 15
"""Constraints kept: selection plans a program many times with few differences."""


@dataclass(frozen=True, slots=True, order=True)
class OffsetConstraint(Generic[BufferKey]):
    """offset(b) - offset(a) must not be in the open interval (lo, hi).

    With `modulus` m > 1, differences inside the interval that equal `residue` mod m are
    allowed: a kernel that processes one channel at a time may shift its output by whole
    pixels. An empty interval (hi - lo < 2) allows every difference.
    """

    a: BufferKey
    b: BufferKey
    lo: int
    hi: int
    modulus: int = 0
    residue: int = 0

    def allows(self, offset_a: int, offset_b: int) -> bool:
        difference = offset_b - offset_a
        if not self.lo < difference < self.hi:
            return True
        return self.modulus > 1 and difference % self.modulus == self.residue

    def between(self, a: BufferKey, b: BufferKey) -> OffsetConstraint[BufferKey]:
        return replace(self, a=a, b=b)

    def seen_from(self, buffer: BufferKey) -> OffsetConstraint[BufferKey]:
        if buffer == self.b:
            return self
        lo, hi, modulus = -self.hi, -self.lo, self.modulus
        residue = -self.residue % modulus if modulus > 1 else 0
        return OffsetConstraint(self.b, self.a, lo, hi, modulus, residue)

    def least_allowed(self, difference: int) -> int:
        """Return the smallest allowed difference that is at least `difference`."""
        if not self.lo < difference < self.hi:
            return difference
        if self.modulus < 2:
            return self.hi
        return min(self.hi, difference + (self.residue - difference) % self.modulus)

    def greatest_allowed(self, difference: int) -> int:
        """Return the largest allowed difference that is at most `difference`."""
        if not self.lo < difference < self.hi:
            return difference
        if self.modulus < 2:
            return self.lo
        return max(self.lo, difference - (difference - self.residue) % self.modulus)


def disjoint_constraint(a: BufferInfo, b: BufferInfo) -> OffsetConstraint[str]:
    return _distant(a.name, b.name, -b.size_bytes, a.size_bytes)


@lru_cache(CONSTRAINTS_KEPT)
def _distant(a: str, b: str, lo: int, hi: int) -> OffsetConstraint[str]:
    return OffsetConstraint(a, b, lo, hi)


Constraints: TypeAlias = Sequence[OffsetConstraint[str]]


@dataclass(frozen=True, slots=True)
class Placement:
    """The pool of a buffer and the offset of its first byte."""

    pool: str
    offset: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A placement for every buffer; `lower_bound_bytes` is a proven least size."""

    planner: str
    placements: Mapping[str, Placement]
    pool_bytes: Mapping[str, int]
    lower_bound_bytes: int
    buffers: tuple[BufferInfo, ...] = ()
    conflicts: tuple[OffsetConstraint[str], ...] = ()

    @property
    def workspace_bytes(self) -> int:
        return sum(self.pool_bytes.values())

    @property
    def optimality_gap_bytes(self) -> int:
        """Workspace bytes above the proven minimum."""
        return self.workspace_bytes - self.lower_bound_bytes


@dataclass(frozen=True, slots=True)
class RelocatedBuffer:
    """A buffer at `offset` of an instrumented build, at `planned` in the plan."""

    name: str
    pool: str
    offset: int
    planned: int
    size_bytes: int

    @property
    def end(self) -> int:
        return self.offset + self.size_bytes


Planner: TypeAlias = Callable[
    [Sequence[BufferInfo], Constraints, Sequence[PoolInfo]], Plan
]
