"""In-place analysis: which inputs and outputs of a kernel may overlap, and at which offsets.

Results are cached by kernel body, so one cache can serve many plans of modules that share kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from firmwright.ir import tir
from firmwright.ir.module import AnyFunction
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
    """Constraints by kernel body and parameters.

    Holds the bodies so that their ids remain unique.
    """

    entries: dict[tuple[int, str, str], tuple[tir.Stmt, Constraints | None]] = field(
        default_factory=dict
    )

    def constraints(self, func: tir.PrimFunc, source: str, result: str) -> Constraints | None:
        key = (id(func.body), source, result)
        if key not in self.entries:
            constraints = find_offset_constraints(func, source, result)
            if constraints == ():  # any difference is allowed
                constraints = (OffsetConstraint(source, result, 0, 0),)
            self.entries[key] = (func.body, constraints)
        return self.entries[key][1]


@dataclass(frozen=True, slots=True)
class InplaceAnalysis:
    """In-place analysis of kernels by name and parameter positions."""

    kernels: Mapping[str, AnyFunction]
    cache: InplaceCache

    def pairs(self, callee: str) -> list[tuple[int, int]]:
        kernel = self.kernels.get(callee)
        if not isinstance(kernel, tir.PrimFunc):
            return []
        roles = [p.role if isinstance(p.value, tir.Buffer) else "" for p in kernel.params]
        inputs = [position for position, role in enumerate(roles) if role == "in"]
        outputs = [position for position, role in enumerate(roles) if role == "out"]
        return [(source, result) for source in inputs for result in outputs]

    def pair_in_call(
        self, call: tir.PrimFuncCall, source: int, result: int, names: tuple[str, str], time: int
    ) -> InplacePair | None:
        """Return the pair of two arguments of a call; None if they must be disjoint."""
        kernel = self.kernels[call.callee]
        assert isinstance(kernel, tir.PrimFunc)
        params = kernel.params[source].name, kernel.params[result].name
        constraints = self.cache.constraints(kernel, *params)
        if constraints is None:
            return None
        return InplacePair(LiveRange(time, time + 1), tuple(c.between(*names) for c in constraints))

    def pair_in_loop(
        self, loop: tir.For, source: tir.Buffer, result: tir.Buffer, live: LiveRange
    ) -> InplacePair | None:
        """Return the pair of two buffers that `loop` accesses; None if they must be disjoint."""
        params = (tir.Param(source, "in"), tir.Param(result, "out"))
        func = tir.PrimFunc("loop", params, loop)
        constraints = self.cache.constraints(func, source.name, result.name)
        return None if constraints is None else InplacePair(live, constraints)
