"""What a schedule rule is and what it offers: the records that lowering and selection share.

A rule builds one kernel for a call in one configuration. `lower` collects the alternatives of
every call, `select` picks one each. Entries live under `schedules/`, the default loops of an
operator (its own `lower`) are the last alternative always.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from firmwright.ir import tir
from firmwright.ir.core import Constant
from firmwright.ir.graph.opdef import OpCall, RowReduction, RowWindow

Config: TypeAlias = Mapping[str, int | str]


@dataclass(frozen=True, slots=True)
class Schedule:
    """One way to lower `op` on targets that have all of `requires`.

    `configs` lists the configurations worth trying for a call, best guess first, none where the
    rule does not apply; where the call's tensors lie may decide it. `build` writes the kernel into
    an `ops.kernel.Kernel`. Results are identical whatever is picked, but for rules that fuse. A
    call may be a few rows of a layer: one row, no padding above and below.
    `disable_scheduling` says that the kernel's loads stand where registers are free: a compiler
    that
    hoists them spills (gcc's first scheduling pass does). A rule with a `goal` is offered under
    `--optimize GOAL` alone: it pays with what other goals save. One that `fuses` rounds sums of
    floats less often than the default loops, so it is offered only where no operator of the model
    makes a step of the last bit.
    A `fold` takes rows in where the call is computed row by row (see `RowReduction.accumulate`).
    """

    name: str
    op: str
    requires: frozenset[str]
    configs: Callable[[OpCall], Sequence[Config]]
    build: Callable[[OpCall, Config, Any], None]
    direction: Literal["forward", "backward"] = "forward"
    granularity: Literal["element", "block", "row", "tensor"] = "tensor"
    disable_scheduling: bool = False
    goal: str = ""
    fuses: bool = False
    space: Callable[[OpCall], Sequence[Config]] | None = None
    fold: Callable[[OpCall, Any, Any, Any], None] | None = None

    def tunable_configs(self, call: OpCall) -> tuple[Config, ...]:
        """Every configuration that may be built for `call`, those worth offering first."""
        own = tuple(self.configs(call))
        more = () if self.space is None else self.space(call)
        return own + tuple(config for config in more if config not in own)


DEFAULT_SCHEDULE = "default"
"""What an operator's own loops are called among rules."""


@dataclass(frozen=True, slots=True)
class LoweringCandidate:
    """One lowering of one call, with what it costs.

    `scratch_bytes` is planned memory beside inputs and outputs, `flash_bytes` its constants.
    Predicted (see `cost.py`) are `code_bytes`, and of one execution `instructions` and `cycles`,
    those None where no table gives the core's timing.
    """

    rule: str
    config: Config
    function: tir.PrimFunc
    constants: Mapping[str, Constant] = field(default_factory=dict)
    direction: Literal["forward", "backward"] = "forward"
    granularity: Literal["element", "block", "row", "tensor"] = "tensor"
    scratch_bytes: int = 0
    flash_bytes: int = 0
    code_bytes: int = 0
    instructions: int = 0
    cycles: int | None = None

    def priced(self, instructions: int) -> LoweringCandidate:
        """The same with another count, and cycles in proportion."""
        if self.cycles is None:
            return replace(self, instructions=instructions)
        cycles = self.cycles * instructions // max(self.instructions, 1)
        return replace(self, instructions=instructions, cycles=cycles)

    @property
    def image_bytes(self) -> int:
        """Constants and code."""
        return self.flash_bytes + self.code_bytes

    @property
    def time(self) -> int:
        """What choices go by: cycles where they are known, else instructions."""
        return self.instructions if self.cycles is None else self.cycles


@dataclass(frozen=True, slots=True)
class RowKernels:
    """How one call is computed row by row.

    Each alternative makes one row of the output from the rows it needs; of a fold it takes one row
    of the input in, and `finish` makes the output.
    """

    rows: RowWindow | RowReduction
    candidates: tuple[LoweringCandidate, ...]
    finish: LoweringCandidate | None = None
