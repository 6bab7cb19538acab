"""In-place analysis: which inputs and outputs of a kernel may overlap, and at which offsets.

Results are cached by kernel body, so one cache can serve many plans of modules that share kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from firmwright.ir import tir
from firmwright.ir.tir.inplace_distance import find_offset_constraints
from firmwright.ir.tir.plan import LiveRange, OffsetConstraint

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
    """Constraints by kernel body and parameters; holds the bodies so that their ids stay unique."""

    entries: dict[tuple[int, str, str], tuple[tir.Stmt, Constraints | None]] = field(
        default_factory=dict
    )

    def constraints(self, func: tir.PrimFunc, source: str, result: str) -> Constraints | None:
        """Return constraints on the offsets of two parameters; None if they must be disjoint."""
        key = (id(func.body), source, result)
        if key not in self.entries:
            constraints = find_offset_constraints(func, source, result)
            if constraints == ():  # any difference is allowed
                constraints = (OffsetConstraint(source, result, 0, 0),)
            self.entries[key] = (func.body, constraints)
        return self.entries[key][1]
