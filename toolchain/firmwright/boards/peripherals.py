"""Peripherals of a board; a driver is a file of the port, such as `console_NAME.c`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Annotated, Final, Literal

from firmwright.base.rounding import divide_up
from firmwright.boards.clock import Clock
from firmwright.boards.memory import ADDRESSES, BANDWIDTH
from firmwright.boards.problems import Problems
from firmwright.boards.toml_table import TomlKey, TomlTable, read_table
from firmwright.ir.core import PoolInfo

CounterUnit = Literal["instructions", "cycles", "ns"]
RegisterWrites = tuple[tuple[int, int], ...]
"""Pairs of an address and the word, or the bits, to write there."""

CONSOLES: Final = {
    "host": ("stdio",),
    "cortex_m": (
        "cmsdk_uart",
        "none",
        "nrf51_uart",
        "nrf53_uarte",
        "nrf54l_uarte",
        "rp2_uart",
        "rtt",
        "stm32_usart",
        "stm32f1_usart",
    ),
    "cortex_r": ("none", "pl011"),
    "riscv32": ("esp_uart", "none", "ns16550", "sifive_uart"),
    "xtensa": ("esp_uart", "none", "ns16550"),
}
COUNTERS: Final = {
    "host": ("clock",),
    "cortex_m": ("systick", "nrf51_timer"),
    "cortex_r": ("pmccntr",),
    "riscv32": ("minstret", "esp_cycles"),
    "xtensa": ("ccount",),
}
CONSOLE_KEYS: Final = {
    "cmsdk_uart": ("base",),
    "nrf51_uart": ("base", "tx_pin", "rx_pin"),
    "nrf53_uarte": ("base", "gpio", "tx_pin", "rx_pin"),
    "nrf54l_uarte": ("base", "gpio", "tx_pin", "rx_pin"),
    "rp2_uart": ("base", "tx_pin", "rx_pin"),
    "stm32_usart": ("base", "gpio", "tx_pin", "rx_pin", "function", "enable"),
    "stm32f1_usart": ("base", "tx_pin", "rx_pin"),
    "ns16550": ("base",),
    "pl011": ("base",),
    "esp_uart": ("base",),
    "sifive_uart": ("base", "gpio", "tx_pin", "rx_pin"),
}
"""The keys that the C of a console driver requires, besides `driver`."""
CONSOLE_KEYS_WITH_GPIO: Final = {"stm32f1_usart": ("function", "enable")}
"""The keys that a console driver requires if `gpio` gives the registers of the pins."""
COUNTER_KEYS: Final = {"nrf51_timer": ("base",)}
BOOTS: Final = {"cortex_m": ("rp2040", "rp2350"), "riscv32": ("esp_direct",)}
"""Boot ROMs that expect a header before the program: `boot_NAME.c`."""
CORES_DRIVERS: Final = {"cortex_m": ("sse200",)}
DMA_DRIVERS: Final = {"cortex_m": ("pl081",)}
WATCHDOG_DRIVERS: Final = {"cortex_m": ("cmsdk",)}

HOST_CHANNELS: Final = 2
"""DMA channels that the host simulates."""
HOST_CORES: Final = 8
"""The number of cores on the host, where threads simulate them."""
_PIN: Final = re.compile(r"P([A-K])(\d|1[0-5])")
_WATCHDOG_TICKS_MAX: Final = (1 << 32) - 1


def read_register_writes(table: TomlTable, key: str) -> RegisterWrites:
    """Read pairs of a word-aligned address and a word."""
    pairs = table.pairs(key)
    for address, word in pairs:
        if address % 4 or max(address, word) >= ADDRESSES or min(address, word) < 0:
            pair = f"[{address:#x}, {word:#x}]"
            what = f"{pair} is not a pair of an aligned address and a word."
            raise table.error(key, what)
    return pairs


def _read_pin(table: TomlTable, key: str) -> int:
    """Read a pin number, or a name such as "PC7", with 16 pins per port."""
    if not table.is_text(key):
        return table.integer(key, 0)
    text = table.text(key)
    match = _PIN.fullmatch(text)
    if match is None:
        form = "a number, or a port and a number from 0 to 15 as 'PC7'"
        raise table.error(key, f"{text!r} is not a pin: write {form}.")
    return 16 * (ord(match[1]) - ord("A")) + int(match[2])


def _read_scale(table: TomlTable, key: str) -> tuple[int, int]:
    scale = table.integers(key)
    if len(scale) != 2 or min(scale) < 1:
        expected = "[numerator, denominator], both at least 1"
        raise table.error(key, f"expected {expected}, found {list(scale)}.")
    return scale[0], scale[1]


@dataclass(frozen=True, slots=True)
class Console:
    """The serial port of the link.

    `gpio` is the address of the first GPIO port, `function` the pins' alternate
    function. The baud rate divider counts `steps` per period of `clock_hz` or, if that
    is 0, of the clock of `bus`. `enable` lists pairs (address, bits) of register bits
    to set first. Registers of a 16550 are `stride` bytes apart. A write to `update`
    applies new settings, if the address is not 0.
    """

    driver: Annotated[str, TomlKey(choices=CONSOLES)]
    base: int = 0
    tx_pin: Annotated[int, TomlKey(read=_read_pin)] = 0
    rx_pin: Annotated[int, TomlKey(read=_read_pin)] = 0
    gpio: int = 0
    function: int = 0
    bus: str = ""
    clock_hz: int = 0
    steps: Annotated[int, TomlKey(minimum=1)] = 1
    stride: Annotated[int, TomlKey(minimum=1, maximum=4)] = 1
    enable: Annotated[RegisterWrites, TomlKey(read=read_register_writes)] = ()
    update: int = 0


@dataclass(frozen=True, slots=True)
class PerformanceCounter:
    """The counter that measures a run; a tick is `scale[0] / scale[1]` of `unit`."""

    driver: Annotated[str, TomlKey(choices=COUNTERS)]
    unit: CounterUnit
    scale: Annotated[tuple[int, int], TomlKey(read=_read_scale)]
    base: int = 0


@dataclass(frozen=True, slots=True)
class Cores:
    """The cores of a chip, `count` in all; registers at `base` start all but the main.

    `core` is that of the others if they have more instructions than the main core.
    """

    driver: Annotated[str, TomlKey(choices=CORES_DRIVERS)]
    base: int
    count: Annotated[int, TomlKey(minimum=2)]
    core: str = ""


@dataclass(frozen=True, slots=True)
class DmaController:
    """A DMA controller for memory-to-memory copies.

    A copy takes `setup` cycles, the time of its bytes, and `burst_cycles` for each
    `burst` bytes. `interrupt` signals its end.
    """

    driver: Annotated[str, TomlKey(choices=DMA_DRIVERS)]
    base: int
    interrupt: int
    channels: Annotated[int, TomlKey(minimum=1, maximum=8)] = 1
    setup: int = 16
    burst: Annotated[int, TomlKey(minimum=1)] = 16
    burst_cycles: int = 4

    def bus_cycles(self, size_bytes: int, source: PoolInfo, target: PoolInfo) -> int:
        """Return the cycles of a copy after `setup`; reads and writes alternate."""
        bursts = divide_up(size_bytes, self.burst)
        latency = (source.read_latency or 0) + (target.write_latency or 0)
        per_byte = 1 / (source.read_bandwidth or BANDWIDTH)
        per_byte += 1 / (target.write_bandwidth or BANDWIDTH)
        return ceil(size_bytes * per_byte) + bursts * (self.burst_cycles + latency)


@dataclass(frozen=True, slots=True)
class Watchdog:
    """A watchdog that resets the chip after `timeout_ms` without a kick.

    `clock_hz` is the frequency of its clock.
    """

    driver: Annotated[str, TomlKey(choices=WATCHDOG_DRIVERS)]
    base: int
    timeout_ms: int = 0
    clock_hz: int = 0

    @property
    def ticks(self) -> int:
        """The time-out in ticks of the watchdog's clock."""
        return self.clock_hz * self.timeout_ms // 1000


def require_driver_keys(
    table: TomlTable, driver: str, keys: Mapping[str, Sequence[str]]
) -> None:
    """Raise BoardError unless `table` has values for the keys the driver requires."""
    hint = "boards/README.md describes the keys of each driver."
    problems = Problems()
    for key in keys.get(driver, ()):
        if not table.has(key) or table.is_empty(key):
            with problems.collect():
                what = f"the driver {driver} requires this key."
                raise table.error(key, what, hint)
    problems.raise_any()


def read_console(table: TomlTable, port: str) -> Console:
    """Read `[console]`; BoardError if keys that the driver requires are missing."""
    problems = Problems()
    if table.has("driver") and table.is_text("driver"):
        with problems.collect():
            driver = table.text("driver")
            require_driver_keys(table, driver, CONSOLE_KEYS)
            if table.has("gpio"):
                require_driver_keys(table, driver, CONSOLE_KEYS_WITH_GPIO)
    with problems.report():
        return read_table(table, Console, port)


def check_console_bus(table: TomlTable, console: Console, clock: Clock | None) -> None:
    """Raise BoardError if `clock` has no divider for the console's bus."""
    if console.bus and (clock is None or clock.bus_divider(console.bus) is None):
        what = f"no clock of this board defines the divider of {console.bus!r}."
        raise table.error("bus", what)


def read_counter(table: TomlTable, port: str) -> PerformanceCounter:
    """Read `[counter]`; BoardError if a key that the driver requires is missing."""
    counter = read_table(table, PerformanceCounter, port)
    require_driver_keys(table, counter.driver, COUNTER_KEYS)
    return counter


def read_watchdog(table: TomlTable, port: str, clock_hz: int) -> Watchdog | None:
    """Read `[watchdog]`; None without a time-out.

    `clock_hz` is the frequency of the chip after reset, the default of its clock.
    """
    watchdog = read_table(table, Watchdog, port)
    watchdog = replace(watchdog, clock_hz=watchdog.clock_hz or clock_hz)
    if watchdog.ticks > _WATCHDOG_TICKS_MAX:
        ticks = f"{watchdog.ticks} ticks of the watchdog"
        limit = f"which counts to {_WATCHDOG_TICKS_MAX}"
        what = f"{watchdog.timeout_ms} ms are {ticks}, {limit}."
        raise table.error("timeout_ms", what)
    return watchdog if watchdog.timeout_ms else None


def copy_channels(dma: DmaController | None, *, is_host: bool) -> tuple[str, ...]:
    """Return the DMA channels' names in `--devices` and in virtual devices."""
    if is_host:
        count = HOST_CHANNELS
    else:
        count = 0 if dma is None else dma.channels
    return tuple(f"dma{number}" for number in range(count))


def core_count(cores: Cores | None, *, is_host: bool) -> int:
    """Return the number of cores that can share a model."""
    if is_host:
        return HOST_CORES
    return 1 if cores is None else cores.count
