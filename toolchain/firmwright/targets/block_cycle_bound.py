"""Upper bounds of the modeled cycles of executed blocks (cycle_model.py)."""

from dataclasses import dataclass, field

from firmwright.targets.block_compiler import Block
from firmwright.targets.core_timing import CoreTiming
from firmwright.targets.cycle_model import path_cycles
from firmwright.targets.machine_code import MachineCode, store


@dataclass(slots=True)
class CycleBound:
    """The `total` cycles of blocks and of their accesses; 0 without `timing`.

    Blocks cost as if a branch had arrived, which empties the fetch buffer, with the
    longest stall by an instruction before it. Each line of flash is read again; `flash`
    has the start and size of the flash, the cycles of a read, and its bytes.
    """

    code: MachineCode
    timing: CoreTiming | None = None
    flash: tuple[int, int, int, int] = (0, 0, 0, 4)
    total: float = 0.0
    _costs: dict[int, float] = field(default_factory=dict)

    def add(self, block: Block) -> None:
        if not self.timing or not block.addresses:
            return
        first = block.addresses[0]
        if first not in self._costs:
            timing, (_, _, _, line) = self.timing, self.flash
            instructions = self.code.instructions
            path = [(address, instructions[address]) for address in block.addresses]
            stalls = timing.result_stall.values()
            stall = max(timing.load_tail, timing.address_stall, *stalls, 0)
            reads = (block.end - 1) // line - first // line + 1
            cycles = path_cycles(timing, path) + stall + reads * self._waits(first)
            self._costs[first] = cycles
        self.total += self._costs[first]

    def load(
        self, stack: dict[int, int], address: int | None, size: int, is_signed: bool
    ) -> int | None:
        self.total += self._waits(address) + self._unaligned(address, size)
        return self.code.load(stack, address, size, is_signed)

    def store(
        self, stack: dict[int, int], address: int | None, value: int | None, size: int
    ) -> None:
        self.total += self._unaligned(address, size)
        store(stack, address, value, size)

    def _unaligned(self, address: int | None, size: int) -> float:
        if self.timing is None or size not in (2, 4):
            return 0.0
        offset = size - 1 if address is None else address & (size - 1)
        return self.timing.unaligned * ((offset > 0) + (size == 4 and offset & 1))

    def _waits(self, address: int | None) -> int:
        start, length, waits, _ = self.flash
        return waits if address is None or 0 <= address - start < length else 0
