"""Cycle timing of cores from published tables, for memory without wait states."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from firmwright.targets.instruction_decoders import Instruction, InstructionKind

# A model, not a measurement. Cortex-M4, M3 and M0 follow their technical reference manuals, with
# typical values where those give a range. M7, M33 and M55 issue two instructions at once or overlap
# beats, which a table cannot express; their entries are rough averages. RISC-V cores publish none.


@dataclass(frozen=True, slots=True)
class CoreTiming:
    """The timing table of a core; kinds without an entry take `other` cycles.

    Multiple loads and stores take `multiple` plus `per_register` for each register, a load directly
    after another load `load_after_load`; `taken_cycles` is added per taken branch. `source` states
    the origin.
    """

    source: str
    other: float = 1.0
    cycles: Mapping[InstructionKind, float] = field(default_factory=dict)
    load_after_load: float = 1.0
    multiple: float = 1.0
    per_register: float = 1.0
    taken_cycles: float = 2.0

    def of(
        self, instruction: Instruction, count: int, taken_count: int, *, after_load: bool
    ) -> float:
        """Return the cycles of `count` executions, of which `taken_count` are taken branches."""
        match instruction.kind:
            case "load_multiple" | "store_multiple":
                each = self.multiple + self.per_register * instruction.registers
            case "load" if after_load:
                each = self.load_after_load
            case kind:
                each = self.cycles.get(kind, self.other)
        return (
            each * count + (0.0 if instruction.kind == "loop" else self.taken_cycles) * taken_count
        )


_TRM = "the core's technical reference manual, zero-wait memory"
_ROUGH = "a rough average of an overlapping pipeline, zero-wait memory"

_ARMV7E_M: Mapping[InstructionKind, float] = {
    "load": 2.0,
    "divide": 7.0,
    "float_multiply_add": 3.0,
    "float_divide": 14.0,
}

_M0: Mapping[InstructionKind, float] = {"load": 2.0, "store": 2.0}

CORE_TIMINGS: Mapping[str, CoreTiming] = {
    "cortex-m0": CoreTiming(_TRM, cycles=_M0, load_after_load=2.0, taken_cycles=2.0),
    "cortex-m0plus": CoreTiming(_TRM, cycles=_M0, load_after_load=2.0, taken_cycles=1.0),
    "cortex-m3": CoreTiming(_TRM, cycles={**_ARMV7E_M, "multiply_long": 4.0}),
    "cortex-m4": CoreTiming(_TRM, cycles=_ARMV7E_M),
    "cortex-m7": CoreTiming(
        _ROUGH, other=0.6, load_after_load=0.6, multiple=0.5, per_register=0.5, taken_cycles=0.5,
        cycles={"multiply": 1.0, "multiply_long": 1.0, "divide": 7.0, "float_divide": 14.0},
    ),
    "cortex-m33": CoreTiming(
        _ROUGH,
        cycles={"load": 1.5, "divide": 7.0, "float_multiply_add": 2.0, "float_divide": 12.0},
    ),
    "cortex-m55": CoreTiming(
        _ROUGH, taken_cycles=1.5,
        cycles={
            "divide": 7.0, "float_divide": 12.0, "loop": 0.2, "vector": 1.7, "vector_load": 1.7,
            "vector_store": 2.0,
        },
    ),
}  # fmt: skip
"""Tables by core; a core without an entry has no published timing that a table can express."""
