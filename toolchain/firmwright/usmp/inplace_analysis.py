"""The distances of the kernels a module calls, found once for each kernel.

In: the kernels, before their scratch is lifted. Out: which pairs of parameters may overlap and what
is forbidden of each. One `InplaceAnalysis` may serve many plans of modules that share kernels, as
selection makes them: what is known of a kernel is kept by its body.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from firmwright.ir import tir
from firmwright.ir.module import AnyFunction
from firmwright.ir.tir.inplace_distance import find_offset_constraints
from firmwright.ir.tir.plan import LiveRange, OffsetConstraint

Constraints = tuple[OffsetConstraint, ...]


@dataclass(frozen=True, slots=True)
class InplacePair:
    """An input and an output of what happens during `live`: one call, or a loop of calls.

    `constraints` relate the offsets of a kernel's parameters, input first.
    """

    source: str
    result: str
    live: LiveRange
    constraints: Constraints

    def renamed(self, names: Mapping[str, str]) -> InplacePair:
        source, result = names.get(self.source, self.source), names.get(self.result, self.result)
        return replace(self, source=source, result=result)


@dataclass(slots=True)
class InplaceCache:
    """What was found so far, by body and parameters; bodies are held so that ids stay theirs."""

    entries: dict[tuple[int, str, str], tuple[tir.Stmt, Constraints | None]] = field(
        default_factory=dict
    )

    def of(self, func: tir.PrimFunc, source: str, result: str) -> Constraints | None:
        key = (id(func.body), source, result)
        if key not in self.entries:
            self.entries[key] = (func.body, find_offset_constraints(func, source, result))
        return self.entries[key][1]


@dataclass(frozen=True, slots=True)
class InplaceAnalysis:
    """Asked by a callee's name and positions among its parameters."""

    kernels: Mapping[str, AnyFunction]
    known: InplaceCache

    def pairs(self, callee: str) -> list[tuple[int, int]]:
        """Positions (input, output) that may overlap at all."""
        kernel = self.kernels.get(callee)
        if not isinstance(kernel, tir.PrimFunc):
            return []
        roles = [p.role if isinstance(p.value, tir.Buffer) else "" for p in kernel.params]
        inputs = [position for position, role in enumerate(roles) if role == "in"]
        outputs = [position for position, role in enumerate(roles) if role == "out"]
        return [(source, result) for source in inputs for result in outputs]

    def of(self, callee: str, source: int, result: int) -> Constraints | None:
        """What is forbidden of that pair; None if it must be disjoint."""
        kernel = self.kernels[callee]
        assert isinstance(kernel, tir.PrimFunc)
        return self.known.of(kernel, kernel.params[source].name, kernel.params[result].name)

    def in_loop(self, loop: tir.For, source: tir.Buffer, result: tir.Buffer) -> Constraints | None:
        """What is forbidden of two buffers that `loop` reads and writes, by calls or itself."""
        params = (tir.Param(source, "in"), tir.Param(result, "out"))
        return self.known.of(tir.PrimFunc("loop", params, loop), source.name, result.name)
