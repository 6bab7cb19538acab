"""Upper bounds of the modeled cycles of executed blocks (cycle_model.py)."""

from dataclasses import dataclass, field

from firmwright.targets.core_timing import CoreTiming
from firmwright.targets.cycle_model import path_cycles
from firmwright.targets.machine_code import Block, MachineCode


@dataclass(slots=True)
class CycleBound:
    """The `total` cycles of blocks and of their accesses.

    Blocks cost as if a branch had arrived, which empties the fetch buffer, with the longest stall
    by an instruction before it. Each line of flash is read again; `flash` has the start and size of
    the flash, the cycles of a read, and its bytes.
    """

    timing: CoreTiming
    flash: tuple[int, int, int, int]
    total: float = 0.0
    _costs: dict[int, float] = field(default_factory=dict)

    def add(self, code: MachineCode, block: Block) -> None:
        first = block.addresses[0] if block.addresses else 0
        if first not in self._costs and block.addresses:
            timing, (_, _, _, line) = self.timing, self.flash
            path = [(address, code.instructions[address]) for address in block.addresses]
            stall = max(timing.load_tail, timing.address_stall, *timing.result_stall.values(), 0)
            reads = (block.end - 1) // line - first // line + 1
            self._costs[first] = path_cycles(timing, path) + stall + reads * self._waits(first)
        self.total += self._costs.get(first, 0.0)

    def add_load(self, address: int | None, size: int) -> None:
        self.total += self._waits(address)
        self.add_store(address, size)

    def add_store(self, address: int | None, size: int) -> None:
        if size in (2, 4) and (address is None or address & (size - 1)):
            worst = size == 4 and (address is None or address & 1)
            self.total += self.timing.unaligned * (2 if worst else 1)

    def _waits(self, address: int | None) -> int:
        start, length, waits, _ = self.flash
        return waits if address is None or 0 <= address - start < length else 0
