"""Interference: the offset constraints between every two simultaneously live buffers.

Live buffers are disjoint. If an input's last use is the call that defines an output, the constraint
is as weak as the kernel's order of reads and writes permits: none, one interval, or two intervals
of which one is periodic. The in-place analysis is cached by kernel body.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from firmwright.ir import tir
from firmwright.ir.tir.inplace_distance import find_offset_constraints
from firmwright.ir.tir.plan import BufferInfo, LiveRange, OffsetConstraint, disjoint_constraint
from firmwright.usmp.hoist_scratch import HoistedBody
from firmwright.usmp.liveness import live_sets

Constraints = tuple[OffsetConstraint[str], ...]


@dataclass(frozen=True, slots=True)
class InplacePair:
    """An input and an output of a call or a loop that may overlap during `live`.

    There is at least one constraint; a is the input and b the output.
    """

    live: LiveRange
    constraints: Constraints

    @property
    def names(self) -> tuple[str, str]:
        return self.constraints[0].a, self.constraints[0].b

    def with_names(self, names: Mapping[str, str]) -> InplacePair:
        a, b = (names.get(name, name) for name in self.names)
        return replace(self, constraints=tuple(c.between(a, b) for c in self.constraints))


@dataclass(slots=True)
class InplaceCache:
    """Constraints and hoisted forms by kernel body; bodies are kept so that ids stay unique."""

    entries: dict[tuple[int, str, str], tuple[tir.Stmt, Constraints | None]] = field(
        default_factory=dict
    )
    hoisted: dict[int, HoistedBody] = field(default_factory=dict)

    def constraints(self, func: tir.PrimFunc, source: str, result: str) -> Constraints | None:
        """Return constraints on the offsets of two parameters; None if they must be disjoint."""
        key = (id(func.body), source, result)
        if key not in self.entries:
            constraints = find_offset_constraints(func, source, result)
            if constraints == ():  # any difference is allowed
                constraints = (OffsetConstraint(source, result, 0, 0),)
            self.entries[key] = (func.body, constraints)
        return self.entries[key][1]


def build_interference(
    buffers: Sequence[BufferInfo], inplace_pairs: Collection[InplacePair] = ()
) -> tuple[OffsetConstraint[str], ...]:
    shared = {pair.names: pair for pair in inplace_pairs}
    constraints: list[OffsetConstraint[str]] = []
    for i, j in sorted(_pairs_alive_together(buffers)):
        a, b = buffers[i], buffers[j]
        if (b.name, a.name) in shared:
            a, b = b, a
        pair = shared.get((a.name, b.name))
        if pair is not None and _are_live_together_only_in(a, b, pair.live):
            constraints += pair.constraints
        else:
            constraints.append(disjoint_constraint(buffers[i], buffers[j]))
    return tuple(constraints)


def _pairs_alive_together(buffers: Sequence[BufferInfo]) -> set[tuple[int, int]]:
    """Return the pairs of indices, the lower first, of buffers that are live at one time.

    A pair is new in a live set only if one of its buffers is.
    """
    pairs: set[tuple[int, int]] = set()
    previous: frozenset[int] = frozenset()
    for alive in live_sets(buffers):
        current = frozenset(alive)
        for new in current - previous:
            pairs.update((min(new, old), max(new, old)) for old in alive if old != new)
        previous = current
    return pairs


def _are_live_together_only_in(a: BufferInfo, b: BufferInfo, live: LiveRange) -> bool:
    common = {
        (max(mine.first, other.first), min(mine.end, other.end))
        for mine in a.live
        for other in b.live
        if mine.overlaps(other)
    }
    return common == {(live.first, live.end)}
