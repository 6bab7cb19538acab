"""A model of cost: what one call of a PrimFunc executes, and what its code takes, by prediction.

In: a PrimFunc as lowering builds it, and the weights of a family of targets. Out: a `Cost`. Every
figure is a weighted sum of the same kinds of work (ir/tir/op_count.py): of how often each is done
for
instructions and cycles, of how often it stands in the code for bytes. Weights are fitted to what
images were counted to execute (targets/cost_weights.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from firmwright.ir import tir
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.tir.op_count import NO_ARGUMENTS, REGISTERS, count_operations

_CODE_BYTES = 4.0
"""Of a unit of work whose code nobody priced: most instructions take as many."""


@dataclass(frozen=True, slots=True)
class CostWeights:
    """What one unit of each kind of work takes; kinds are the words that `count_operations` counts.

    A kind without an instruction weight counts one. `cycles` is empty where no table gives a core's
    timing. Intrinsics count what their table says, times `intrinsic`, unless they are priced here
    by name; with `NAME.fixed` where every argument beside the first is a constant.
    """

    name: str
    instructions: Mapping[str, float]
    cycles: Mapping[str, float] = field(default_factory=dict)
    code_bytes: Mapping[str, float] = field(default_factory=dict)
    registers: int = REGISTERS


GENERIC_WEIGHTS = CostWeights(
    "generic",
    {"loop": 2.0, "divide": 2.0, "entry": 1.0, "call": 10.0, "row": 0.0},
    code_bytes={"row": 0.0},
)
"""What is assumed of a target that nobody has fitted."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one call, without functions that it calls. `cycles` is None without a timing table."""

    instructions: int
    cycles: int | None
    code_bytes: int

    @property
    def time(self) -> int:
        """What choices go by: cycles where they are known, else instructions."""
        return self.instructions if self.cycles is None else self.cycles


def estimate_cost(
    func: tir.PrimFunc,
    intrinsics: IntrinsicTable,
    weights: CostWeights = GENERIC_WEIGHTS,
    arguments: Mapping[str, int] = NO_ARGUMENTS,
) -> Cost:
    """What `func` is predicted to cost; `arguments` are values of its scalar parameters."""
    found = count_operations(func, intrinsics, weights.instructions, weights.registers, arguments)
    return Cost(
        round(_weighted_sum(found.done, weights.instructions, 1.0)),
        round(_weighted_sum(found.done, weights.cycles, 1.0)) if weights.cycles else None,
        round(_weighted_sum(found.written, weights.code_bytes, _CODE_BYTES)),
    )


def _weighted_sum(counts: Mapping[str, float], prices: Mapping[str, float], other: float) -> float:
    return sum(prices.get(kind, other) * count for kind, count in counts.items())
