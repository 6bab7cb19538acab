"""A pipeline that issues in order as soon as operands and units are available."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field

from firmwright.targets.core_timing import CoreTiming
from firmwright.targets.disassembly import Instruction

_LONG_AGO = -99.0


@dataclass(slots=True)
class Scoreboard:
    """A core that has just branched after executing `loop`; `now` counts from there."""

    timing: CoreTiming
    loop: InitVar[Sequence[Instruction]]
    now: float = 0.0
    _open: Instruction | None = None
    _ready: dict[str, float] = field(default_factory=dict)
    _loaded: set[str] = field(default_factory=set)
    _free: dict[int, float] = field(default_factory=dict)

    def __post_init__(self, loop: Sequence[Instruction]) -> None:
        for instruction in loop:
            self.execute(0, instruction)
        self._ready = {name: cycle - self.now for name, cycle in self._ready.items()}
        self._free = {unit: cycle - self.now for unit, cycle in self._free.items()}
        self._open = None
        last = loop[-1] if loop else None
        is_free = last and (last.kind == "loop" or last.variant == "loop_end")
        self.now = 0.0 if is_free else self.timing.refill

    def execute(self, address: int, instruction: Instruction) -> None:
        timing = self.timing
        sources = instruction.reads | instruction.address
        ready = [self._operand(name, instruction) for name in sources]
        operands = max(ready, default=_LONG_AGO)
        name = instruction.variant or instruction.kind
        units = [i for i, unit in enumerate(timing.units) if name in unit]
        paired = self._pairs(instruction)
        free = [self._free.get(unit, 0.0) for unit in units]
        start = max(self.now - paired, operands, *free)
        paired = start < self.now
        for unit in units:
            self._free[unit] = start + _lookup(timing.busy, instruction, 1.0)
        latency = _lookup(timing.latency, instruction, 1.0)
        if latency < 1 and (paired or start < operands + timing.early):
            latency = 1.0
        self._loaded -= instruction.writes
        is_load = instruction.kind in ("load", "load_multiple")
        if is_load and instruction.variant != "narrow":
            self._loaded |= instruction.writes - instruction.base
        for register in instruction.writes:
            is_base = register in instruction.base
            self._ready[register] = start + (1 - timing.early if is_base else latency)
        cycles = _lookup(timing.cycles, instruction, -1.0)
        if instruction.kind in ("load_multiple", "store_multiple"):
            cycles += timing.per_register * instruction.words
        self._open = instruction if cycles < 0 and not paired else None
        self.now = max(self.now, start + (1 if cycles < 0 else math.ceil(cycles)))

    def _operand(self, name: str, instruction: Instruction) -> float:
        """Return the first cycle in which the instruction can issue with an operand."""
        ready = self._ready.get(name, _LONG_AGO)
        if name in self._loaded:
            ready += _lookup(self.timing.after_load, instruction, 0.0)
        if name in instruction.address or name in instruction.early:
            return ready + self.timing.early
        late = name in instruction.late
        return ready - (_lookup(self.timing.late, instruction, 0.0) if late else 0.0)

    def _pairs(self, instruction: Instruction) -> bool:
        first, limit = self._open, self.timing.pair_bytes
        return (
            first is not None
            and max(first.size_bytes, instruction.size_bytes) <= limit
            and (instruction.variant or instruction.kind) in self.timing.second
        )


def _lookup(
    table: Mapping[str, float], instruction: Instruction, default: float
) -> float:
    return table.get(instruction.variant, table.get(instruction.kind, default))
