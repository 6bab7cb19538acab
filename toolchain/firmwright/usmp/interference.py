"""Interference: the offset constraints between every two simultaneously live buffers.

Live buffers are disjoint. If an input's last use is the call that defines an output,
the constraint is as weak as the kernel's order of reads and writes permits: none, one
interval, or two intervals of which one is periodic. The in-place analysis is cached by
kernel body.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from firmwright.ir import tir
from firmwright.ir.tir.inplace_distance import find_offset_constraints
from firmwright.ir.tir.kernel_code import code_of
from firmwright.ir.tir.plan import (
    BufferInfo,
    LiveRange,
    OffsetConstraint,
    disjoint_constraint,
)
from firmwright.usmp.hoist_scratch import HoistedCode
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
        """The names of the input and the output."""
        return self.constraints[0].a, self.constraints[0].b

    def with_names(self, names: Mapping[str, str]) -> InplacePair:
        """Return the pair with the buffers renamed that `names` has."""
        a, b = self.names
        new_a, new_b = names.get(a, a), names.get(b, b)
        renamed = tuple(c.between(new_a, new_b) for c in self.constraints)
        return replace(self, constraints=renamed)


@dataclass(slots=True)
class InplaceCache:
    """Constraints and hoisted forms by kernel code; codes are kept for unique ids."""

    entries: dict[tuple[Hashable, ...], tuple[tir.Stmt, Constraints | None]] = field(
        default_factory=dict
    )
    hoisted: dict[int, HoistedCode] = field(default_factory=dict)

    def constraints(
        self, func: tir.PrimFunc, source: str, result: str
    ) -> Constraints | None:
        """Return the constraints on two parameters; None if they must be disjoint."""
        # Codes are compared by identity, which costs nothing. The entry keeps the code
        # alive, so that no other one gets its id.
        code = code_of(func.body)
        stated = func.attrs.get("inplace_distances")
        key = (id(code), func.params, stated, source, result)
        if key not in self.entries:
            constraints = find_offset_constraints(func, source, result)
            if constraints == ():  # any difference is allowed
                constraints = (OffsetConstraint(source, result, 0, 0),)
            self.entries[key] = (code, constraints)
        return self.entries[key][1]


def build_interference(
    buffers: Sequence[BufferInfo], inplace_pairs: Collection[InplacePair] = ()
) -> tuple[OffsetConstraint[str], ...]:
    """Return the constraints between all buffers that are live together, by position.

    A pair in `inplace_pairs` may overlap if its buffers are live together only in its
    time.
    """
    shared = {pair.names: pair for pair in inplace_pairs}
    constraints: list[OffsetConstraint[str]] = []
    for i, j in sorted(_pairs_alive_together(buffers)):
        a, b = buffers[i], buffers[j]
        # Constraints of a pair are about b - a, with a the input, in either order.
        if (b.name, a.name) in shared:
            a, b = b, a
        pair = shared.get((a.name, b.name))
        if pair is not None and _are_live_together_only_in(a, b, pair.live):
            constraints += pair.constraints
        else:
            constraints.append(disjoint_constraint(buffers[i], buffers[j]))
    return tuple(constraints)


def _pairs_alive_together(buffers: Sequence[BufferInfo]) -> set[tuple[int, int]]:
    """Return the index pairs, the lower first, of buffers that are live at one time.

    A pair is new in a live set only if one of its buffers is.
    """
    pairs: set[tuple[int, int]] = set()
    previous: frozenset[int] = frozenset()
    for alive in live_sets(buffers):
        current = frozenset(alive)
        # Of two buffers that were both live before, the pair is known already. This
        # makes the work proportional to the pairs instead of times * pairs.
        for new in current - previous:
            for other in alive:
                if other < new:
                    pairs.add((other, new))
                elif other > new:
                    pairs.add((new, other))
        previous = current
    return pairs


def _are_live_together_only_in(a: BufferInfo, b: BufferInfo, live: LiveRange) -> bool:
    """Return whether `live` is exactly the time in which both buffers are live."""
    common: set[LiveRange] = set()
    for mine in a.live:
        for other in b.live:
            if mine.overlaps(other):
                first, end = max(mine.first, other.first), min(mine.end, other.end)
                common.add(LiveRange(first, end))
    return common == {live}
