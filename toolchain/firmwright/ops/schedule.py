"""Schedules and the lowering candidates that they build."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Generic, TypeAlias, TypeVar

from firmwright.base.dtypes import DType
from firmwright.ir import tir
from firmwright.ir.core import Constant
from firmwright.ir.graph import OpCall
from firmwright.ir.tir.builder import Builder
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import RowReduction, RowWindow

Setting: TypeAlias = int | str
"""The value of one field of a configuration, as text shows it."""


@dataclass(frozen=True, slots=True)
class ScheduleConfig:
    """The configuration of a schedule for one call; this class itself has no fields.

    Schedules with a choice to make have a subclass of their own. Its fields are
    integers, strings or flags. Texts (comments of the C code, metadata, tuning logs)
    name a field as the class does and omit the fields that have their default, so a
    default must never change its meaning. Nothing parses these texts: a reader compares
    them with the configurations that the schedule has for the layer.
    """

    @property
    def is_for_overlap(self) -> bool:
        """Whether only an output that overlaps the input gains by it.

        Bands of rows are never in the memory of their input.
        """
        return False

    def settings(self) -> dict[str, Setting]:
        """Return the fields that texts show, in their order; set flags are 1."""
        shown: dict[str, Setting] = {}
        for item in fields(self):
            value: Setting | None = getattr(self, item.name)
            if value is not None and value != item.default:
                shown[item.name] = int(value) if isinstance(value, bool) else value
        return shown


NO_CONFIG = ScheduleConfig()
ConfigT_co = TypeVar("ConfigT_co", bound=ScheduleConfig, covariant=True)
"""The class of a schedule's configurations.

A table holds schedules of all classes as `Schedule[ScheduleConfig]`. This is sound
because `build` and `short_loops` are called only with configurations that the same
schedule returned.
"""


@dataclass(frozen=True, slots=True)
class Schedule(Generic[ConfigT_co]):
    """A way to lower `op` on targets that have all features in `requires`.

    `configs` returns the configurations to try for a call, most promising first, or
    none if the schedule does not apply. `build` writes the kernel. A call may compute a
    band of a layer's rows, without vertical padding. All schedules give identical
    results except functions such as tanh, within the same bounds, and schedules with
    `fuses`, which round float sums less often than the default loops; those are offered
    only if no operator of the model is sensitive to the last bit.

    `disable_scheduling` marks kernels with loads that gcc's first scheduling pass would
    hoist and spill, `keep_block_order` those of which gcc would move branches away from
    their conditions. A schedule with a `goal` is offered only if selection minimizes
    that goal: `--flash` makes `balanced` `size`, and `--ram` also offers `ram`. `fold`
    accumulates rows if the call is computed row by row (see `RowReduction.accumulate`).
    `short_loops` returns a configuration with less unrolling, for flash with a small
    instruction cache, or the same one if its loops are short. `takes_weight_zero_point`
    is set if weights may have a zero point other than 0. `time_max`, if set, is the
    maximum share of the default loops' predicted instructions.
    """

    name: str
    op: str
    requires: frozenset[str]
    configs: Callable[[OpCall], Sequence[ConfigT_co]]
    build: Callable[[OpCall, ConfigT_co, Kernel], None]
    disable_scheduling: bool = False
    keep_block_order: bool = False
    goal: str = ""
    fuses: bool = False
    space: Callable[[OpCall], Sequence[ConfigT_co]] | None = None
    fold: Callable[[OpCall, Builder, tir.Buffer, tir.Buffer], None] | None = None
    takes_weight_zero_point: bool = False
    short_loops: Callable[[OpCall, ConfigT_co], ConfigT_co] | None = None
    time_max: float = 0.0

    @property
    def kernel_attributes(self) -> dict[str, bool]:
        """Return the attributes of its kernels that are set."""
        marks = {
            "disable_scheduling": self.disable_scheduling,
            "keep_block_order": self.keep_block_order,
        }
        return {name: True for name, is_set in marks.items() if is_set}

    def with_short_loops(self, *, only: bool = True) -> Schedule[ConfigT_co]:
        """Return the schedule that offers short loops.

        If `only`, it leaves other configurations to tuning.
        """
        shorten = self.short_loops
        if shorten is None:
            return self

        def configs(call: OpCall) -> tuple[ConfigT_co, ...]:
            own = tuple(self.configs(call))
            short = tuple(shorten(call, config) for config in own)
            if only:
                return short
            return own + tuple(config for config in short if config not in own)

        return replace(self, configs=configs, space=self.tunable_configs)

    def tunable_configs(self, call: OpCall) -> tuple[ConfigT_co, ...]:
        """Return every configuration that may be built for `call`, defaults first."""
        own = tuple(self.configs(call))
        more = () if self.space is None else self.space(call)
        return own + tuple(config for config in more if config not in own)


DEFAULT_SCHEDULE = "default"
"""The schedule name of an operator's default loops."""


@dataclass(frozen=True, slots=True)
class LoweringCandidate:
    """One lowering of one call, with its cost.

    `scratch_bytes` is planned memory besides inputs and outputs, `flash_bytes` the size
    of constants. `code_bytes` and, per execution, `instructions` and `cycles` are
    predictions (`cost_model.py`); `cycles` is None if the core has no timing table.
    `stall_cycles` are those of tensors that were assigned to a pool slower than the
    fastest one.
    """

    rule: str
    config: ScheduleConfig
    function: tir.PrimFunc
    constants: Mapping[str, Constant] = field(default_factory=dict)
    scratch_bytes: int = 0
    flash_bytes: int = 0
    code_bytes: int = 0
    instructions: int = 0
    cycles: int | None = None
    stall_cycles: int = 0

    def with_instructions(self, instructions: int) -> LoweringCandidate:
        if self.cycles is None:
            return replace(self, instructions=instructions)
        cycles = self.cycles * instructions // max(self.instructions, 1)
        return replace(self, instructions=instructions, cycles=cycles)

    @property
    def image_bytes(self) -> int:
        return self.flash_bytes + self.code_bytes

    @property
    def time(self) -> int:
        """Cycles if known, else instructions, with the stalls in slow pools."""
        own = self.instructions if self.cycles is None else self.cycles
        return self.stall_cycles + own

    def has_same_code(self, other: LoweringCandidate) -> bool:
        """Whether the two are equal except for the values of their constants."""
        if self._layout() != other._layout():
            return False
        return self.function == other.function

    def _layout(self) -> list[tuple[str, DType, tuple[int, ...]]]:
        return [(name, c.dtype, c.shape) for name, c in self.constants.items()]


@dataclass(frozen=True)
class RowKernels:
    """Kernels that compute one call row by row, built when they are first used.

    Each candidate computes one band of output rows from the input rows that it needs.
    For a reduction it accumulates one band of input rows, and `finish` computes the
    output.
    """

    rows: RowWindow | RowReduction
    build: Callable[[], tuple[LoweringCandidate, ...]]
    build_finish: Callable[[], LoweringCandidate] | None = None

    @cached_property
    def candidates(self) -> tuple[LoweringCandidate, ...]:
        return self.build()

    @cached_property
    def finish(self) -> LoweringCandidate | None:
        return None if self.build_finish is None else self.build_finish()
