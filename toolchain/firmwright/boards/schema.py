"""The board description: an immutable `Board`, which `reader.py` reads from TOML."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal, TypeVar

from firmwright.base.errors import BoardError
from firmwright.base.rounding import round_up
from firmwright.boards import peripherals
from firmwright.boards.clock import Clock
from firmwright.boards.flash_tools import FlashTools
from firmwright.boards.memory import (
    BANDWIDTH,
    MemoryKind,
    MemoryRegion,
    region_problems,
)
from firmwright.boards.toml_table import TomlKey, TomlTable
from firmwright.ir.core import PoolInfo

Compiler = Literal["gcc", "clang", "zig"]
"""The compiler of the models.

zig also replaces the toolchain's runtime, C library and linker.
"""
RunKind = Literal["host", "qemu", "serial", "plugin"]
Validation = Literal["emulated", "built", "hardware"]

CORES: Final = (
    "host",
    "cortex-m0",
    "cortex-m0plus",
    "cortex-m3",
    "cortex-m4",
    "cortex-m7",
    "cortex-m33",
    "cortex-m33+nodsp",
    "cortex-m52",
    "cortex-m55",
    "cortex-m85",
    "cortex-r5",
    "rv32imac",
    "rv32imc",
    "rv32imac_zve32x",
    "rv32imafdc_zve32f",
    "lx106",
    "lx6",
)
POOL_ALIGN: Final = 16
MEMORY_ALIGN: Final = 0x1_0000
STACK_BYTES_MIN: Final = 320
"""Twice a fault report's 160 bytes (with the link's): it may use half of the stack."""
LINK_PAYLOAD_BYTES: Final = 256
LINK_PAYLOAD_BYTES_MIN: Final = 64
LINK_PAYLOAD_BYTES_MAX: Final = 65000

CHIP_ID_MAX: Final = 0xFFFF_FFFC

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunConfig:
    """How firmware starts; for an emulator its `program`, `machine` and arguments."""

    kind: RunKind
    program: str = ""
    machine: str = ""
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChipEmulator:
    """An emulator of a chip that is used while no board of it is connected.

    `transport` is the name of a plug-in (device/transport_plugins.py), and `chip` is
    what it calls the chip.
    """

    transport: str
    chip: str


@dataclass(frozen=True, slots=True)
class Limits:
    """The bytes reserved for the stack, and for a runtime that shares RAM with a pool.

    With `fit_stack`, the planner reserves `stack_bytes`, and the image its computed
    worst case.
    """

    stack_bytes: Annotated[int, TomlKey("stack", minimum=STACK_BYTES_MIN)]
    runtime_bytes: Annotated[int, TomlKey("runtime")] = 1536
    fit_stack: bool = False
    link_payload_bytes: Annotated[
        int,
        TomlKey(
            "link_payload",
            minimum=LINK_PAYLOAD_BYTES_MIN,
            maximum=LINK_PAYLOAD_BYTES_MAX,
        ),
    ] = LINK_PAYLOAD_BYTES


@dataclass(frozen=True, slots=True)
class Calibration:
    """A chip's factor of modeled cycles and its flash wait states.

    The measured factors lie between `least` and `most`.
    """

    scale: Annotated[float, TomlKey(read=TomlTable.number)]
    least: Annotated[float, TomlKey(read=TomlTable.number)]
    most: Annotated[float, TomlKey(read=TomlTable.number)]
    measured: str
    wait_states: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The source of a board's compiler flags, linker script, pools and sessions."""

    name: str
    description: str
    validation: Validation
    soc: str = ""
    """The file of the chip in `boards/soc`, without its suffix; "" without one."""
    core: Annotated[str, TomlKey(choices=CORES)]
    port: Annotated[str, TomlKey(choices=tuple(peripherals.CONSOLES))]
    toolchain: str
    compiler: Compiler = "gcc"
    cpu_flags: tuple[str, ...]
    clock_hz: int = 0
    clock_max_hz: int = 0
    """The highest clock of the chip's processor; 0 if it is not stated."""
    memory: tuple[MemoryRegion, ...]
    clock: Clock | None
    console: peripherals.Console
    counter: peripherals.PerformanceCounter
    run: RunConfig
    limits: Limits
    reset: Annotated[
        peripherals.RegisterWrites, TomlKey(read=peripherals.read_register_writes)
    ] = ()
    """Register writes that restart the chip, in order; empty if the core does it."""
    start_up: Annotated[
        peripherals.RegisterWrites, TomlKey(read=peripherals.read_register_writes)
    ] = ()
    """Register writes before any driver, such as those that stop a watchdog."""
    pipeline: str = ""
    """For modeled cycles: the core's implementation if `core` is an instruction set."""
    caches: bool = False
    """Whether start-up enables the caches of the core."""
    chip_id: Annotated[int, TomlKey(maximum=CHIP_ID_MAX)] = 0
    """The address of a word that tells the kind of chip, not the device; 0 if unknown.

    An emulator may lack it, so that it is read on real boards only.
    """
    boot: str = ""
    """The boot ROM that requires a header before the program; "" for none."""
    export_only: str = ""
    """Why no firmware can be built for the chip, as a sentence; "" if it can."""
    flash_tools: Annotated[FlashTools, TomlKey("flash")]
    watchdog: peripherals.Watchdog | None = None
    targets: tuple[str, ...] = ()
    """Accelerators with their attributes on this board, in the form of --target."""
    cores: peripherals.Cores | None = None
    dma: peripherals.DmaController | None = None
    calibration: Calibration | None = None
    emulator: ChipEmulator | None = None
    """For a board whose firmware runs behind a serial port; None without one."""
    modeled_hz: Annotated[int, TomlKey(has_key=False)] = 0
    """The processor's clock for modeled time, which `at_clock` changes; 0 if unknown.

    It is that of the built firmware; for a chip without a clock driver the highest one,
    to which an application's own start-up raises it.
    """
    tables: Annotated[tuple[object, ...], TomlKey(has_key=False)] = ()
    """What extensions read from their tables; see `table`."""

    def table(self, kind: type[T]) -> T | None:
        """Return what an extension read from its table; None without the table.

        The type of the value identifies the extension.
        """
        for value in self.tables:
            if isinstance(value, kind):
                return value
        return None

    def at_clock(self, hz: int) -> "Board":
        """Return the board with the modeled time and wait states of a clock of `hz`.

        Raise BoardError if the flash is too slow for it.
        """
        memory = tuple(region.at_clock(hz) for region in self.memory)
        return replace(self, modeled_hz=hz, memory=memory)

    @property
    def is_host(self) -> bool:
        return self.port == "host"

    @property
    def chip(self) -> str:
        """The name of the chip as its manufacturer writes it, or that of the board."""
        return self.soc.upper().replace("_", " ") or self.name

    @property
    def run_hz(self) -> int:
        """The clock of the processor after start-up; 0 if unknown."""
        return self.clock_hz if self.clock is None else self.clock.hz

    @property
    def flash_bytes(self) -> int | None:
        """The size of all flash regions in bytes; None on the host."""
        return self._total("flash")

    @property
    def ram_bytes(self) -> int | None:
        """The size of all RAM regions in bytes; None on the host."""
        return self._total("ram")

    @property
    def flash(self) -> MemoryRegion:
        """The first region of kind flash: it holds vectors, code and constants."""
        return next(r for r in self.memory if r.kind == "flash")

    @property
    def ram(self) -> MemoryRegion:
        """The first region of kind ram: it holds data and the stack."""
        return next(r for r in self.memory if r.kind == "ram")

    @property
    def ramfunc(self) -> MemoryRegion | None:
        """The RAM region for hot functions, if flash has wait states."""
        if self.is_host or not self.flash.wait_states:
            return None
        return next((r for r in self.memory if r.ramfunc), None)

    def pools(self) -> tuple[PoolInfo, ...]:
        """Return the planner's pools; the first RAM's excludes stack and runtime."""
        if self.is_host:
            return (PoolInfo("sram"),)
        return tuple(self._pool(region) for region in self.memory if region.pool)

    def _pool(self, region: MemoryRegion) -> PoolInfo:
        usual = BANDWIDTH if self.flash.wait_states else None
        bandwidth = region.bandwidth or usual
        return PoolInfo(
            region.pool,
            self._pool_bytes(region),
            read_bandwidth=bandwidth,
            write_bandwidth=bandwidth,
            read_latency=region.latency,
            write_latency=region.latency,
            section=f".noinit.{region.name}",
            cache_line=region.cache_line,
            targets=region.targets,
            tightly_coupled=region.tightly_coupled,
        )

    def const_pools(self) -> tuple[PoolInfo, ...]:
        """Return the constant pools: the program's flash, regions with `const_pool`."""
        if self.is_host:
            return ()
        pools = []
        for region in self.memory:
            is_program = region == self.flash
            if region.const_pool or is_program:
                name = region.const_pool or region.name
                section = "" if is_program else f".rodata.{region.name}"
                pool = PoolInfo(name, region.size_bytes, access="ro", section=section)
                pools.append(pool)
        return tuple(pools)

    @property
    def relocates_vectors(self) -> bool:
        """Whether start-up sets the address of the vector table."""
        return (
            self.run.kind == "serial"
            and self.port == "cortex_m"
            and self.core != "cortex-m0"
        )

    @property
    def console_hz(self) -> int:
        """The console's clock frequency after reset."""
        return self.console.clock_hz or self.clock_hz

    @property
    def console_raised_hz(self) -> int:
        """The console's clock frequency once start-up has raised the processor's."""
        if self.console.clock_hz or self.clock is None:
            return self.console_hz
        return self.clock.hz // (self.clock.bus_divider(self.console.bus) or 1)

    @property
    def external(self) -> MemoryRegion | None:
        """The region that emulates memory outside the address space; None without."""
        return next((r for r in self.memory if r.const_pool), None)

    def _pool_bytes(self, region: MemoryRegion) -> int:
        reserved = 0
        if region == self.ram:
            reserved = self.limits.stack_bytes + self.limits.runtime_bytes
        return (region.size_bytes - reserved) // POOL_ALIGN * POOL_ALIGN

    def _total(self, kind: MemoryKind) -> int | None:
        if not self.memory:
            return None
        return sum(r.size_bytes for r in self.memory if r.kind == kind)


def with_const_pools(board: Board, pools: Iterable[PoolInfo]) -> Board:
    """Return the board with a region for each pool that has an address.

    Raise BoardError if it overlaps another region.
    """
    memory = list(board.memory)
    for pool in pools:
        if pool.start is None or pool.size_bytes is None or board.is_host:
            continue
        region = MemoryRegion(
            name=pool.name,
            start=pool.start,
            size_bytes=pool.size_bytes,
            kind="flash",
            const_pool=pool.name,
        )
        if region in memory:
            continue
        for _, problem in region_problems(region, memory):
            what = f"--const-pool {pool.name} at {pool.start:#x}: {problem}"
            raise BoardError(what, where=board.name, hint="other addresses.")
        memory.append(region)
    return replace(board, memory=tuple(memory))


def with_memory_of(board: Board, chip: Board) -> Board:
    """Return an emulated `board` with a chip's regions, moved to the board's addresses.

    Both have the same core. Of a larger flash, as much as the emulator has is used.
    """
    if chip.core != board.core or board.run.kind != "qemu":
        what = f"{board.name} cannot emulate {chip.name}."
        raise BoardError(what, hint=f"an emulated board with a {chip.core}.")
    size_bytes = min(chip.flash.size_bytes, board.flash.size_bytes)
    flash = replace(
        chip.flash, start=board.flash.start, size_bytes=size_bytes, data_start=0
    )
    start, memory = board.ram.start, [flash]
    for region in chip.memory:
        if region.kind == "ram":
            memory.append(replace(region, start=start))
            start += round_up(region.size_bytes, MEMORY_ALIGN)
    if start > board.ram.end:
        raise BoardError(f"{board.name} has too little memory to emulate {chip.name}.")
    name, pipeline = f"{board.name}@{chip.name}", chip.pipeline
    return replace(board, name=name, memory=tuple(memory), pipeline=pipeline)
