"""Predicted cycles that a run waits for flash: lines of code and constants.

Flash is read in lines of `read_bytes`, each with `wait_states`. The caches are modeled
for whole objects, which are a kernel's code and its constants: an object is still in
the cache if it and all that was read since its last use fit. Constants larger than the
cache are read again on every pass over them. Code in loops larger than the cache is
not predicted, since schedules avoid it. Without a cache, all code comes from flash.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from firmwright.boards.memory import MemoryRegion
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.memory_traffic import NO_TRAFFIC, count_traffic
from firmwright.ir.tir.traversal import walk

_INSTRUCTION_BYTES = 3.4
"""The mean size of an executed instruction of Thumb-2."""


@dataclass(frozen=True, slots=True)
class ConstantReads:
    """The size of a constant, and the bytes that one call reads of it."""

    name: str
    size_bytes: int
    read_bytes: int


@dataclass(frozen=True, slots=True)
class KernelReads:
    """What one call of a kernel reads from flash: its code and its constants."""

    name: str
    code_bytes: int
    constants: tuple[ConstantReads, ...]


def kernel_reads(
    module: IRModule, kernel: tir.PrimFunc, code_bytes: int
) -> KernelReads:
    """Return the reads of a kernel with its own constants, as selection leaves it."""
    traffic = count_traffic(kernel, {})
    constants: list[ConstantReads] = []
    for node in walk(kernel.body):
        if isinstance(node, tir.AllocateConst):
            size_bytes = module.constants[node.constant].size_bytes
            read_bytes = traffic.get(node.buffer.name, NO_TRAFFIC).read_bytes
            constants.append(ConstantReads(node.constant, size_bytes, read_bytes))
    return KernelReads(kernel.name, code_bytes, tuple(constants))


@dataclass(slots=True)
class _Cache:
    """A cache of whole objects that evicts the one that was not used for longest."""

    capacity_bytes: int
    ways: int
    """The lines of a set; 0 is a fully associative cache."""
    used: dict[str, int] = field(default_factory=dict)
    """The sizes of the objects by name, in the order of their last use."""

    def read(self, name: str, size_bytes: int) -> int:
        """Use an object; return the bytes that are read from flash."""
        since = 0
        for other in reversed(self.used):
            since += self.used[other]
            if other == name:
                break
        is_cached = name in self.used and since <= self.capacity_bytes
        self.used.pop(name, None)
        self.used[name] = size_bytes
        return 0 if is_cached else size_bytes

    def share_read_again(self, size_bytes: int) -> float:
        """Return the share of bytes that each pass over `size_bytes` reads again.

        In a loop over more lines than a set has ways, each is evicted before its next
        use. Just above the capacity, few sets have too many lines:

            lines of a set    2 2 2 3 3 2 2 2    two ways: the sets with 3 lines miss
        """
        excess = size_bytes - self.capacity_bytes
        if excess <= 0:
            return 0.0
        if not self.ways:
            return 1.0
        return min(1.0, (self.ways + 1) * excess / size_bytes)


def flash_stall_cycles(
    flash: MemoryRegion,
    kernels: Mapping[str, KernelReads],
    calls: Sequence[str],
    instructions: int,
) -> int:
    """Return the cycles for which the `calls` of kernels in one run wait for flash.

    `instructions` is the number of executed instructions.
    """
    if not flash.wait_states:
        return 0
    code = data = _Cache(flash.instruction_cache, flash.cache_ways)
    if not flash.unified_cache:
        data = _Cache(flash.data_cache, flash.cache_ways)
    read_bytes = 0.0
    for _ in ("fill the caches", "measure"):
        read_bytes = sum(_read_kernel(kernels[name], code, data) for name in calls)
    waits = read_bytes / flash.read_bytes * flash.wait_states
    if not flash.instruction_cache:
        waits += _uncached_fetch_stalls(flash, instructions)
    return round(waits)


def _uncached_fetch_stalls(flash: MemoryRegion, instructions: int) -> float:
    """Return the cycles for which sequential fetches wait for uncached flash.

    A prefetch buffer reads the next line while the instructions of this one execute.
    """
    per_line = flash.read_bytes / _INSTRUCTION_BYTES
    stalls = float(flash.wait_states or 0)
    if flash.prefetch:
        stalls = max(0.0, stalls + 1 - per_line)
    return instructions / per_line * stalls


def _read_kernel(kernel: KernelReads, code: _Cache, data: _Cache) -> float:
    """Return the bytes that one call reads from flash."""
    fetched = 0
    if code.capacity_bytes:
        fetched = code.read(f"{kernel.name}()", kernel.code_bytes)
    size = read_bytes = missed = 0
    for constant in kernel.constants:
        size += constant.size_bytes
        read_bytes += constant.read_bytes
        missed += data.read(constant.name, constant.size_bytes)
    if data is code:
        size += kernel.code_bytes
    share = data.share_read_again(size)
    return fetched + share * read_bytes + (1 - share) * missed
