"""The memory map of a board: address regions and the pools that they hold."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

from firmwright.base.errors import BoardError
from firmwright.boards.problems import Problems
from firmwright.boards.toml_table import TomlKey, TomlTable, read_table

MemoryKind = Literal["flash", "ram"]
WaitStateLimits = tuple[tuple[int, int], ...]
"""Pairs of a processor clock in Hz and the wait states up to it, in ascending order."""
ADDRESSES: Final = 1 << 32
WORD_BYTES: Final = 4
SMALL_CACHE_BYTES: Final = 2048
BANDWIDTH: Final = 4.0
"""Bytes per cycle of memory without a stated one: 32 bits without wait states."""
SERIAL_BANDWIDTH: Final = 0.5
"""Slower flash makes a run wait for constants in spite of a large cache."""


def _read_identifier(table: TomlTable, key: str) -> str:
    value = table.text(key)
    if not value.isidentifier() or not value.isascii():
        raise table.error(key, f"{value!r} is not a C identifier.")
    return value


def _read_pool_name(table: TomlTable, key: str) -> str:
    return _read_identifier(table, key) if table.has(key) else ""


def _read_wait_states(table: TomlTable, key: str) -> int | None:
    """Read a number that holds at every clock; None for limits by clock or no key."""
    if not table.has(key) or table.is_list(key):
        return None
    return table.integer(key)


def _read_wait_state_limits(table: TomlTable, key: str) -> WaitStateLimits:
    if not table.is_list(key):
        return ()
    limits = table.pairs(key)
    for low, high in zip(((0, -1), *limits), limits, strict=False):
        if not (low[0] < high[0] and low[1] < high[1]):
            what = "clocks and wait states must both increase from pair to pair."
            hint = "[[HZ, WAIT_STATES], ...], each pair for clocks up to HZ."
            raise table.error(key, what, hint)
    return limits


@dataclass(frozen=True, slots=True)
class MemoryRegion:
    """The addresses `[start, start + size_bytes)`.

    `pool` and `const_pool` name the region's memory pool and constant pool; "" means
    none. `bandwidth` is in bytes per cycle, `latency` in cycles; None means unknown. If
    `targets` is not empty, only kernels of these target kinds may use the pool.
    `cache_line` is the line size of the region's data cache; 0 means no cache.
    Accelerators cannot access `tightly_coupled` memory. A flash region is read in lines
    of `read_bytes` with `wait_states` each (None is unknown); if they depend on the
    processor's clock, `at_clock` takes them from `wait_state_limits`. It has caches of
    `instruction_cache` and `data_cache` bytes with `cache_ways` ways; 0 is fully
    associative. With `unified_cache`, the first serves data as well. With `prefetch`,
    the next line is read during execution. A RAM region with `ramfunc` has hot
    functions, copied at start-up. Constants of flash that is read at other addresses
    than it is executed at begin at `data_start`; 0 means the same addresses.
    """

    name: Annotated[str, TomlKey(read=_read_identifier)]
    start: int
    size_bytes: Annotated[int, TomlKey("size", minimum=1)]
    kind: MemoryKind
    pool: Annotated[str, TomlKey(read=_read_pool_name)] = ""
    bandwidth: float | None = None
    latency: int | None = None
    const_pool: Annotated[str, TomlKey(read=_read_pool_name)] = ""
    targets: tuple[str, ...] = ()
    cache_line: Annotated[int, TomlKey(maximum=64)] = 0
    tightly_coupled: bool = False
    wait_states: Annotated[int | None, TomlKey(read=_read_wait_states)] = None
    wait_state_limits: Annotated[
        WaitStateLimits, TomlKey("wait_states", read=_read_wait_state_limits)
    ] = ()
    read_bytes: Annotated[int, TomlKey(minimum=1, maximum=64)] = 4
    instruction_cache: Annotated[int, TomlKey(maximum=65536)] = 0
    data_cache: Annotated[int, TomlKey(maximum=65536)] = 0
    cache_ways: int = 0
    unified_cache: bool = False
    prefetch: bool = False
    ramfunc: bool = False
    data_start: int = 0

    def at_clock(self, hz: int) -> "MemoryRegion":
        """Return the region with the wait states of a processor at `hz`.

        Raise BoardError if the memory is too slow for that clock.
        """
        if not self.wait_state_limits or not hz:
            return self
        for limit_hz, wait_states in self.wait_state_limits:
            if hz <= limit_hz:
                return replace(self, wait_states=wait_states)
        highest = self.wait_state_limits[-1][0]
        what = f"{self.name} has no wait states for {hz:,} Hz."
        raise BoardError(what, hint=f"a clock of at most {highest:,} Hz.")

    @property
    def has_small_cache(self) -> bool:
        """Whether loops of unrolled kernels would be reread from slow flash."""
        is_small = 0 < self.instruction_cache <= SMALL_CACHE_BYTES
        return bool(self.wait_states) and is_small

    @property
    def read_bandwidth(self) -> float | None:
        """The bytes of constants read in a cycle; None if unknown or mostly cached."""
        speed = self.read_bytes / (1 + (self.wait_states or 0))
        is_slow_for_cache = self.instruction_cache and speed < SERIAL_BANDWIDTH
        is_slow = self.has_small_cache or is_slow_for_cache
        return self.bandwidth or (speed if is_slow else None)

    @property
    def read_model(self) -> tuple[int, ...]:
        """Return the numbers of a flash region for QEMU's counting plugin."""
        caches = (self.instruction_cache, self.data_cache, self.cache_ways)
        flags = (int(self.unified_cache), int(self.prefetch))
        return (self.wait_states or 0, self.read_bytes, *caches, *flags)

    @property
    def data_distance_bytes(self) -> int:
        """The distance from where constants are read to the addresses of the image."""
        return self.start - self.data_start if self.data_start else 0

    @property
    def end(self) -> int:
        return self.start + self.size_bytes


def read_memory_regions(
    table: TomlTable, port: str, problems: Problems
) -> tuple[MemoryRegion, ...]:
    """Read `[[memory]]`; regions must not overlap or share a name or pool.

    Return those that can be read, and record the errors of all.
    """
    regions: list[MemoryRegion] = []
    try:
        rows = table.subtables("memory")
    except BoardError as error:
        problems.add(error)
        return ()
    for row in rows:
        with problems.collect():
            region = read_table(row, MemoryRegion)
            for key, what in region_problems(region, regions):
                problems.add(row.error(key, what))
            regions.append(region)
    if port != "host" and len(regions) == len(rows):
        kinds = {region.kind for region in regions}
        absent = [kind for kind in ("flash", "ram") if kind not in kinds]
        if absent:
            what = f"there is no region of kind {' and none of kind '.join(absent)}."
            problems.add(table.error("memory", what))
    return tuple(regions)


def region_problems(
    region: MemoryRegion, earlier: Sequence[MemoryRegion]
) -> Iterator[tuple[str, str]]:
    """Yield the keys whose values are wrong, each with a sentence."""
    if region.end > ADDRESSES:
        yield "size", f"it ends at {region.end:#x}, above 32 bits."
    for key, value in (("start", region.start), ("size", region.size_bytes)):
        if value % WORD_BYTES:
            yield key, f"{value:,} is not a multiple of {WORD_BYTES}."
    if region.cache_line & (region.cache_line - 1):
        yield "cache_line", "it is not a power of two."
    if region.pool and region.kind != "ram":
        yield "pool", "only a region of kind ram can hold a pool."
    if region.data_start >= region.start and region.data_start:
        yield "data_start", f"it is not below start, {region.start:#x}."
    if region.ramfunc and region.kind != "ram":
        yield "ramfunc", "only a region of kind ram can hold copied functions."
    for other in earlier:
        if region.name == other.name:
            yield "name", f"two regions are called {other.name}."
        for key in ("pool", "const_pool"):
            pool = getattr(region, key)
            if pool and pool == getattr(other, key):
                yield key, f"{other.name} already defines a pool of this name."
        if region.start < other.end and other.start < region.end:
            at = max(region.start, other.start)
            yield "start", f"{region.name} overlaps {other.name} at {at:#x}."
