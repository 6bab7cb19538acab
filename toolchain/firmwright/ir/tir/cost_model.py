"""Cost model of PrimFuncs: predicted instructions, cycles and code bytes of one call.

Instructions and cycles are weighted sums over the executed operations; code bytes are a
weighted sum over the operations in the code.

The weights are fitted to compiled images (`targets/cost_weights.py`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from firmwright.ir import tir
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.tir.op_count import NO_ARGUMENTS, REGISTERS, count_operations

_CODE_BYTES = 4.0
"""Code bytes of an operation without its own weight."""


@dataclass(frozen=True, slots=True)
class CostWeights:
    """The cost of one unit of each operation kind counted by `count_operations`.

    A kind without an instruction weight costs one instruction. `cycles` is empty if the
    core has no timing table. An intrinsic costs the instructions in its table times
    `intrinsic`, unless it has its own weight, under its name or under `NAME.fixed` if
    all arguments after the first are constant. On a `core` whose pipeline prices the
    programs of micro-kernels, an intrinsic that has one costs its instructions times
    `program` and its modeled cycles times `program_cycles`. `run_cycles` predicts the
    time of selected kernels, also on cores where candidates are ranked by instructions;
    it is empty if the core's pipeline is not known. `image` predicts the code and the
    stack of linked images; it is empty for targets that were not measured.
    """

    name: str
    instructions: Mapping[str, float]
    cycles: Mapping[str, float] = field(default_factory=dict)
    code_bytes: Mapping[str, float] = field(default_factory=dict)
    registers: int = REGISTERS
    run_cycles: Mapping[str, float] = field(default_factory=dict)
    image: Mapping[str, float] = field(default_factory=dict)
    core: str = ""


GENERIC_WEIGHTS = CostWeights(
    "generic",
    {"loop": 2.0, "divide": 2.0, "entry": 1.0, "call": 10.0, "row": 0.0},
    code_bytes={"row": 0.0},
)
"""Weights for targets without fitted ones."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Predicted cost of one call, without callees.

    `cycles` is None without a timing table, `run_cycles` without a known pipeline.
    `spilled_values` are those that loops do not keep in registers.
    """

    instructions: int
    cycles: int | None
    code_bytes: int
    run_cycles: int | None = None
    spilled_values: float = 0.0

    @property
    def time(self) -> int:
        """Cycles if known, else instructions."""
        return self.instructions if self.cycles is None else self.cycles


def estimate_cost(
    func: tir.PrimFunc,
    intrinsics: IntrinsicTable,
    weights: CostWeights = GENERIC_WEIGHTS,
    arguments: Mapping[str, int] = NO_ARGUMENTS,
) -> Cost:
    """Predict the cost of `func` with the scalar parameters `arguments`."""
    counts = count_operations(
        func,
        intrinsics,
        weights.instructions,
        weights.registers,
        arguments,
        weights.core,
    )
    instructions = _weighted_sum(counts.done, weights.instructions, 1.0)
    cycles: int | None = None
    if weights.cycles:
        cycles = round(_weighted_sum(counts.done, weights.cycles, 1.0))
    run_cycles: int | None = None
    if weights.run_cycles:
        run_cycles = round(_weighted_sum(counts.done, weights.run_cycles, 1.0))
    code_bytes = _weighted_sum(counts.written, weights.code_bytes, _CODE_BYTES)
    return Cost(
        round(instructions),
        cycles,
        round(code_bytes),
        run_cycles,
        spilled_values=counts.written.get("spill", 0.0),
    )


def _weighted_sum(
    counts: Mapping[str, float], prices: Mapping[str, float], other: float
) -> float:
    """Return the exactly rounded sum, which is the same in all versions of Python."""
    return math.fsum(prices.get(kind, other) * n for kind, n in counts.items())
