"""What a memory planner is given and what it returns; planners and checker know only this file.

Times are positions in the AOT main's structured order, half-open `[first, end)`. Offsets and sizes
are bytes. One relation, `OffsetConstraint`, covers everything two buffers may do to each other:
disjoint, in place, overlapped forward or backward, periodic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from firmwright.ir.core import PoolInfo

BufferKind: TypeAlias = Literal[
    "activation", "input", "output", "scratch", "ring", "state", "const"
]


@dataclass(frozen=True, slots=True)
class LiveRange:
    """Half-open interval of time in which a buffer holds a value somebody still reads."""

    first: int
    end: int

    def overlaps(self, other: LiveRange) -> bool:
        return self.first < other.end and other.first < self.end


@dataclass(frozen=True, slots=True)
class BufferInfo:
    """One buffer to place. `pools` are candidates in order of preference."""

    name: str
    size_bytes: int
    alignment: int
    live: tuple[LiveRange, ...]
    kind: BufferKind
    pools: tuple[str, ...]

    def overlaps_in_time(self, other: BufferInfo) -> bool:
        return any(mine.overlaps(theirs) for mine in self.live for theirs in other.live)


@dataclass(frozen=True, slots=True)
class OffsetConstraint:
    """offset(b) - offset(a) must not lie in the open interval (lo, hi).

    With `modulus` m > 1 differences inside the interval are allowed too when they equal `residue`
    mod m (a channel-outer kernel may share its buffer at multiples of a pixel). The plain case of
    two buffers that must be disjoint is (-size(b), size(a)).
    """

    a: str
    b: str
    lo: int
    hi: int
    modulus: int = 0
    residue: int = 0

    def allows(self, offset_a: int, offset_b: int) -> bool:
        difference = offset_b - offset_a
        if not self.lo < difference < self.hi:
            return True
        return self.modulus > 1 and difference % self.modulus == self.residue


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a buffer lies: pool name and offset of its first byte."""

    pool: str
    offset: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A placement for every buffer. `lower_bound_bytes` is what no plan can go below."""

    planner: str
    placements: Mapping[str, Placement]
    pool_bytes: Mapping[str, int]
    lower_bound_bytes: int
    buffers: tuple[BufferInfo, ...] = ()
    conflicts: tuple[OffsetConstraint, ...] = ()

    @property
    def workspace_bytes(self) -> int:
        return sum(self.pool_bytes.values())

    @property
    def optimality_gap_bytes(self) -> int:
        """How far the plan is from what no plan can go below."""
        return self.workspace_bytes - self.lower_bound_bytes


Planner: TypeAlias = Callable[
    [Sequence[BufferInfo], Sequence[OffsetConstraint], Sequence[PoolInfo]], Plan
]
