"""What a board is: frozen values read from a board's TOML table over its soc's.

In: a `TomlTable`. Out: a `Board` that keeps these rules, each with a malformed file under
`tests/invalid/boards`: known keys only; regions have a size, do not overlap and have unique names;
a board with memory has flash and RAM, at most one region gives a pool of one name, only RAM gives
pools; drivers, cores and run kinds are known ones; a raised clock is one that its driver can reach
within the chip's limits; the stack and the runtime's share fit into RAM.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal, cast, get_args

from firmwright.base.errors import BoardError
from firmwright.boards.bootloader import Bootloader, read_bootloader
from firmwright.boards.clock import Clock, read_clock
from firmwright.boards.cores import Cores, read_cores
from firmwright.boards.dma import DmaController, read_dma
from firmwright.boards.drivers import BOOTS, CONSOLES, COUNTERS
from firmwright.boards.flash_tools import FlashTools, read_flash_tools
from firmwright.boards.memory import ADDRESSES, MemoryKind, MemoryRegion, read_memory
from firmwright.boards.toml_table import TomlTable
from firmwright.boards.watchdog import Watchdog, read_watchdog
from firmwright.ir.core import PoolInfo

RunKind = Literal["host", "qemu", "serial", "renode", "fvp", "plugin"]
CounterUnit = Literal["instructions", "cycles", "ns"]
Validation = Literal["emulated", "built", "hardware"]
RegisterWrites = tuple[tuple[int, int], ...]
"""Addresses, and for each the word or the bits that go there."""

CORES: Final = (
    "host",
    "cortex-m0",
    "cortex-m0plus",
    "cortex-m3",
    "cortex-m4",
    "cortex-m7",
    "cortex-m33",
    "cortex-m33+nodsp",
    "cortex-m55",
    "cortex-m85",
    "rv32imac",
)
UNITS: Final = ("instructions", "cycles", "ns")
VALIDATIONS: Final = ("emulated", "built", "hardware")
POOL_ALIGN: Final = 16
STACK_BYTES_MIN: Final = 320
"""A fault report may need half of the stack, which is 160 bytes with the link's."""
LINK_PAYLOAD_BYTES: Final = 256
LINK_PAYLOAD_BYTES_MIN: Final = 64
LINK_PAYLOAD_BYTES_MAX: Final = 65000

_ROOT_KEYS: Final = (
    "name",
    "description",
    "soc",
    "validation",
    "core",
    "port",
    "toolchain",
    "cpu_flags",
    "clock_hz",
    "memory",
    "clock",
    "console",
    "counter",
    "run",
    "limits",
    "reset",
    "caches",
    "boot",
    "flash",
    "bootloader",
    "watchdog",
    "cores",
    "dma",
)
_CONSOLE_KEYS: Final = (
    "driver",
    "base",
    "tx_pin",
    "rx_pin",
    "gpio",
    "function",
    "bus",
    "clock_hz",
    "steps",
    "enable",
)
_PIN: Final = re.compile(r"P([A-K])(\d|1[0-5])")


@dataclass(frozen=True, slots=True)
class Console:
    """The byte stream of the link: a driver, the address of its registers, its pins if routed.

    `gpio` is the address of the first port and `function` what its pins are to do. The divider
    counts `steps` for each period of a clock: that of `bus`, or `clock_hz` where it has its own.
    In each of `enable`, (address, bits), the bits are set before anything else.
    """

    driver: str
    base: int
    tx_pin: int
    rx_pin: int
    gpio: int = 0
    function: int = 0
    bus: str = ""
    clock_hz: int = 0
    steps: int = 1
    enable: RegisterWrites = ()


@dataclass(frozen=True, slots=True)
class PerformanceCounter:
    """What measures a run: one tick is `scale[0] / scale[1]` of `unit`."""

    driver: str
    base: int
    unit: CounterUnit
    scale: tuple[int, int]


@dataclass(frozen=True, slots=True)
class RunConfig:
    """How firmware is started: `program` and `machine` say which emulator, `args` go to it."""

    kind: RunKind
    program: str
    machine: str
    args: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes kept for the stack, and for the runtime's own data where it shares RAM with a pool.

    With `fit_stack`, `stack_bytes` is what the planner keeps free; the image then takes the worst
    path that its build finds. `link_payload_bytes` is the largest payload of a frame of the link.
    """

    stack_bytes: int
    runtime_bytes: int
    fit_stack: bool = False
    link_payload_bytes: int = LINK_PAYLOAD_BYTES


@dataclass(frozen=True, slots=True)
class Board:
    """A board: everything that flags, linker script, planner pools and sessions are made from."""

    name: str
    description: str
    validation: Validation
    core: str
    port: str
    toolchain: str
    cpu_flags: tuple[str, ...]
    clock_hz: int
    memory: tuple[MemoryRegion, ...]
    clock: Clock | None
    console: Console
    counter: PerformanceCounter
    run: RunConfig
    limits: Limits
    reset: RegisterWrites = ()
    """What is written where, in order, to restart the chip; empty where the core can do it."""
    caches: bool = False
    """Whether start-up turns the core's own caches on."""
    boot: str = ""
    """What a boot ROM wants to find in front of a program; empty where it wants nothing."""
    flash_tools: FlashTools = field(default_factory=FlashTools)
    watchdog: Watchdog | None = None
    bootloader: Bootloader | None = None
    handoff: int = 0
    """Where RAM is that loader and application share; 0 where nothing is linked for a loader."""
    is_model_update: bool = False
    """Whether a model alone is linked, for an application that is in another slot."""
    cores: Cores | None = None
    dma: DmaController | None = None

    @property
    def is_host(self) -> bool:
        return self.port == "host"

    @property
    def flash_bytes(self) -> int | None:
        """All flash together; None on the host, which has no map."""
        return self._total("flash")

    @property
    def ram_bytes(self) -> int | None:
        """All RAM together; None on the host, which has no map."""
        return self._total("ram")

    @property
    def flash(self) -> MemoryRegion:
        """The region that holds vectors, code and constants: the first of kind flash."""
        return next(r for r in self.memory if r.kind == "flash")

    @property
    def ram(self) -> MemoryRegion:
        """The region that holds data and the stack: the first of kind ram."""
        return next(r for r in self.memory if r.kind == "ram")

    def pools(self) -> tuple[PoolInfo, ...]:
        """The planner's pools, in the order of the memory map; one without limit on the host.

        A pool that shares its region with data and the stack is smaller by what those keep.
        """
        if self.is_host:
            return (PoolInfo("sram"),)
        return tuple(
            PoolInfo(
                r.pool,
                self._pool_bytes(r),
                read_bandwidth=r.bandwidth,
                write_bandwidth=r.bandwidth,
                read_latency=r.latency,
                write_latency=r.latency,
                section=f".noinit.{r.name}",
                targets=r.targets,
            )
            for r in self.memory
            if r.pool
        )

    def const_pools(self) -> tuple[PoolInfo, ...]:
        """What constants may be put into: the memory of the program, and regions that say so."""
        if self.is_host:
            return ()
        return tuple(
            PoolInfo(
                r.const_pool or r.name,
                r.size_bytes,
                access="ro",
                section="" if r == self.flash else f".rodata.{r.name}",
            )
            for r in self.memory
            if r.const_pool or r == self.flash
        )

    @property
    def relocates_vectors(self) -> bool:
        """Whether start-up says where the vectors are: boot ROMs and loaders may have their own."""
        return self.run.kind == "serial" and self.port == "cortex_m" and self.core != "cortex-m0"

    @property
    def console_hz(self) -> int:
        """The clock of the console before anything was raised."""
        return self.console.clock_hz or self.clock_hz

    @property
    def console_raised_hz(self) -> int:
        """The clock of the console behind a raised one."""
        if self.console.clock_hz or self.clock is None:
            return self.console_hz
        return self.clock.hz // (self.clock.bus_divider(self.console.bus) or 1)

    @property
    def external(self) -> MemoryRegion | None:
        """The region that plays memory which the core cannot address, where there is one."""
        return next((r for r in self.memory if r.const_pool), None)

    def _pool_bytes(self, region: MemoryRegion) -> int:
        kept = self.limits.stack_bytes + self.limits.runtime_bytes if region == self.ram else 0
        return (region.size_bytes - kept) // POOL_ALIGN * POOL_ALIGN

    def _total(self, kind: MemoryKind) -> int | None:
        if not self.memory:
            return None
        return sum(r.size_bytes for r in self.memory if r.kind == kind)


def read_board(table: TomlTable, name: str) -> Board:
    """The board that `table` describes; `name` is its folder's name, which the file repeats."""
    table.expect_keys(_ROOT_KEYS)
    if table.text("name") != name:
        what = f"the name is {table.text('name')!r}, but the folder is called {name!r}."
        raise BoardError(what, where=table.where("name"), hint="give both the same name.")
    port = table.choice("port", tuple(CONSOLES))
    memory = read_memory(table, port)
    clock = read_clock(table.subtable("clock"), port) if table.has("clock") else None
    clock_hz, watched = table.integer("clock_hz", 0), table.has("watchdog")
    return Board(
        name=name,
        description=table.text("description"),
        validation=cast(Validation, table.choice("validation", VALIDATIONS)),
        core=table.choice("core", CORES),
        port=port,
        toolchain=table.text("toolchain"),
        cpu_flags=table.strings("cpu_flags"),
        clock_hz=clock_hz,
        memory=memory,
        clock=clock,
        console=_read_console(table.subtable("console"), port, clock),
        counter=_read_counter(table.subtable("counter"), port),
        run=_read_run(table.subtable("run")),
        limits=_read_limits(table.subtable("limits"), memory),
        reset=_read_writes(table, "reset"),
        caches=table.boolean("caches", default=False),
        boot=table.choice("boot", BOOTS[port]) if table.has("boot") else "",
        flash_tools=read_flash_tools(table.subtable("flash")),
        watchdog=read_watchdog(table.subtable("watchdog"), port, clock_hz) if watched else None,
        bootloader=read_bootloader(table.subtable("bootloader"), port, memory)
        if table.has("bootloader")
        else None,
        cores=read_cores(table.subtable("cores"), port) if table.has("cores") else None,
        dma=read_dma(table.subtable("dma"), port) if table.has("dma") else None,
    )


def _read_console(table: TomlTable, port: str, clock: Clock | None) -> Console:
    table.expect_keys(_CONSOLE_KEYS)
    console = Console(
        driver=table.choice("driver", CONSOLES[port]),
        base=table.integer("base", 0),
        tx_pin=_read_pin(table, "tx_pin"),
        rx_pin=_read_pin(table, "rx_pin"),
        gpio=table.integer("gpio", 0),
        function=table.integer("function", 0),
        bus=table.text("bus", ""),
        clock_hz=table.integer("clock_hz", 0),
        steps=table.integer("steps", 1, minimum=1),
        enable=_read_writes(table, "enable"),
    )
    if console.bus and (clock is None or clock.bus_divider(console.bus) is None):
        what = f"no clock of this board says what divides {console.bus!r}."
        raise BoardError(what, where=table.where("bus"))
    return console


def _read_pin(table: TomlTable, key: str) -> int:
    """A number, or a port's letter and the number in it as "PC7", 16 pins a port."""
    if not table.is_text(key):
        return table.integer(key, 0)
    text = table.text(key)
    found = _PIN.fullmatch(text)
    if found is None:
        what = f"{text!r} is not a pin: a number, or a port and a number from 0 to 15 as 'PC7'."
        raise BoardError(what, where=table.where(key))
    return 16 * (ord(found[1]) - ord("A")) + int(found[2])


def _read_writes(table: TomlTable, key: str) -> RegisterWrites:
    """Pairs of an address and a word."""
    pairs = table.pairs(key)
    for address, word in pairs:
        if address % 4 or max(address, word) >= ADDRESSES or min(address, word) < 0:
            what = f"[{address:#x}, {word:#x}] is not the address of a word and a word."
            raise BoardError(what, where=table.where(key))
    return pairs


def _read_counter(table: TomlTable, port: str) -> PerformanceCounter:
    table.expect_keys(("driver", "base", "unit", "scale"))
    scale = table.integers("scale")
    if len(scale) != 2 or min(scale) < 1:
        what = f"expected [numerator, denominator], both at least 1, found {list(scale)}."
        raise BoardError(what, where=table.where("scale"))
    return PerformanceCounter(
        driver=table.choice("driver", COUNTERS[port]),
        base=table.integer("base", 0),
        unit=cast(CounterUnit, table.choice("unit", UNITS)),
        scale=(scale[0], scale[1]),
    )


def _read_run(table: TomlTable) -> RunConfig:
    table.expect_keys(("kind", "program", "machine", "args"))
    kind = cast(RunKind, table.choice("kind", get_args(RunKind)))
    return RunConfig(
        kind=kind,
        program=table.text("program", None if kind in ("qemu", "fvp", "plugin") else ""),
        machine=table.text("machine", None if kind in ("qemu", "fvp", "renode") else ""),
        args=table.strings("args", ()),
    )


def _read_limits(table: TomlTable, memory: tuple[MemoryRegion, ...]) -> Limits:
    table.expect_keys(("stack", "runtime", "fit_stack", "link_payload"))
    limits = Limits(
        stack_bytes=table.integer("stack", minimum=STACK_BYTES_MIN),
        runtime_bytes=table.integer("runtime", 1536),
        fit_stack=table.boolean("fit_stack", default=False),
        link_payload_bytes=table.integer(
            "link_payload", LINK_PAYLOAD_BYTES, minimum=LINK_PAYLOAD_BYTES_MIN
        ),
    )
    if limits.link_payload_bytes > LINK_PAYLOAD_BYTES_MAX:
        what = f"{limits.link_payload_bytes} is above {LINK_PAYLOAD_BYTES_MAX}."
        raise BoardError(what, where=table.where("link_payload"))
    ram = next((r.size_bytes for r in memory if r.kind == "ram"), None)
    kept = limits.stack_bytes + limits.runtime_bytes
    if ram is not None and kept >= ram:
        what = f"stack and runtime keep {kept} bytes of a RAM of {ram} bytes."
        raise BoardError(what, where=table.where("stack"))
    return limits
