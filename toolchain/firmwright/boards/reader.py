"""Reads a board file into a `Board`, and reports all of its errors at once."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from firmwright.base.errors import BoardError
from firmwright.boards import peripherals, trust
from firmwright.boards.clock import Clock, read_clock
from firmwright.boards.extension_tables import read_extension_tables, table_readers
from firmwright.boards.flash_tools import read_flash_tools
from firmwright.boards.memory import MemoryRegion, read_memory_regions
from firmwright.boards.problems import Problems
from firmwright.boards.schema import (
    CORES,
    Board,
    Calibration,
    ChipEmulator,
    Limits,
    RunConfig,
)
from firmwright.boards.toml_table import TomlTable, check_keys, read_table

TableReader = Callable[[TomlTable], object]
_REQUIRED: Final = ("console", "counter", "run", "limits", "flash_tools")
_BY_PORT: Final = ("clock", "watchdog", "cores", "dma", "console", "counter")
"""The fields of Board whose tables differ from port to port."""


def read_board(table: TomlTable, name: str) -> Board:
    """Read the board of the folder `name`.

    Raises:
        BoardError: the file violates the schema; a BoardFileError for several errors.
    """
    readers, problems = table_readers(), Problems()
    more_keys = tuple(readers)
    with problems.collect():
        check_keys(table, Board, more_keys)
    with problems.collect():
        _check_name(table, name)
    with problems.collect():
        trust.check_toolchain(table, table.text("toolchain"))
    with problems.collect():
        trust.check_cpu_flags(table, table.strings("cpu_flags"))
        _check_core(table, table.text("core", ""), table.strings("cpu_flags"))
    port = ""
    with problems.collect():
        port = table.choice("port", tuple(peripherals.CONSOLES))
    parts = _read_parts(table, port, problems)
    with problems.collect():
        parts["tables"] = read_extension_tables(table, parts["memory"], readers)
    with problems.report():
        board = read_table(table, Board, port, more_keys=more_keys, **parts)
    return _with_wait_states(board)


def _read_parts(table: TomlTable, port: str, problems: Problems) -> dict[str, Any]:
    """Return the values of the file's tables by field of Board; None after an error.

    With an invalid port, "", those that depend on it are left out.
    """
    parts: dict[str, Any] = {"memory": (), "modeled_hz": 0, "boot": "", "tables": ()}
    for field, read in _table_readers(table, port).items():
        key = "flash" if field == "flash_tools" else field
        parts[field] = None
        is_needed = field in _REQUIRED or table.has(key)
        if is_needed and (port or field not in _BY_PORT):
            with problems.collect():
                parts[field] = read(table.subtable(key))
    parts["memory"] = read_memory_regions(table, port, problems)
    with problems.collect():
        _check_stack(table, parts["limits"], parts["memory"])
    if parts["clock"] or not table.has("clock"):
        with problems.collect():
            _check_clock(table, parts["clock"])
        if parts["run"]:
            with problems.collect():
                _check_wait_states(table, parts)
    if port:
        with problems.collect():
            parts["boot"] = _read_boot(table, port)
    if parts["console"] and (parts["clock"] or not table.has("clock")):
        with problems.collect():
            console = table.subtable("console")
            peripherals.check_console_bus(console, parts["console"], parts["clock"])
    return parts


def _table_readers(table: TomlTable, port: str) -> Mapping[str, TableReader]:
    def read_watchdog(own: TomlTable) -> peripherals.Watchdog | None:
        return peripherals.read_watchdog(own, port, table.integer("clock_hz", 0))

    return {
        "clock": lambda own: read_clock(own, port),
        "calibration": lambda own: read_table(own, Calibration),
        "emulator": lambda own: read_table(own, ChipEmulator),
        "watchdog": read_watchdog,
        "cores": lambda own: read_table(own, peripherals.Cores, port),
        "dma": lambda own: read_table(own, peripherals.DmaController, port),
        "console": lambda own: peripherals.read_console(own, port),
        "counter": lambda own: peripherals.read_counter(own, port),
        "run": _read_run,
        "limits": lambda own: read_table(own, Limits),
        "flash_tools": read_flash_tools,
    }


def _check_name(table: TomlTable, name: str) -> None:
    if table.text("name") != name:
        what = f"the name is {table.text('name')!r}, but the folder is called {name!r}."
        raise table.error("name", what, "give both the same name.")


def _check_core(table: TomlTable, core: str, cpu_flags: tuple[str, ...]) -> None:
    """Raise BoardError if -mcpu names a processor that lacks instructions of `core`."""
    own_name, _, own_extensions = core.partition("+")
    for flag in cpu_flags:
        cpu = flag.removeprefix("-mcpu=")
        name, _, extensions = cpu.partition("+")
        lacks_dsp = "nodsp" in extensions and "nodsp" not in own_extensions
        is_same = name == own_name and not lacks_dsp
        if cpu != flag and core in CORES and not is_same:
            what = f"{flag} contradicts the core {core}."
            raise table.error("cpu_flags", what, f"write -mcpu={core}.")


def _read_boot(table: TomlTable, port: str) -> str:
    if not table.has("boot"):
        return ""
    return table.choice("boot", peripherals.BOOTS.get(port, ()))


def _read_run(table: TomlTable) -> RunConfig:
    run = read_table(table, RunConfig)
    for key, kinds in (("program", ("qemu", "plugin")), ("machine", ("qemu",))):
        if run.kind in kinds:
            table.text(key)
    if run.kind == "qemu":
        trust.check_emulator(table, run.program, run.machine, run.args)
    return run


def _check_stack(
    table: TomlTable, limits: Limits | None, memory: tuple[MemoryRegion, ...]
) -> None:
    ram_bytes = next((r.size_bytes for r in memory if r.kind == "ram"), None)
    if limits is None or ram_bytes is None:
        return
    reserved = limits.stack_bytes + limits.runtime_bytes
    if reserved >= ram_bytes:
        needed = f"stack and runtime reserve {reserved} bytes"
        what = f"{needed}, but the RAM has {ram_bytes} bytes."
        raise table.subtable("limits").error("stack", what)


def _check_clock(table: TomlTable, clock: Clock | None) -> None:
    max_hz = table.integer("clock_max_hz", 0)
    reset_hz = table.integer("clock_hz", 0)
    if 0 < max_hz < reset_hz:
        what = f"{max_hz:,} Hz are below the clock after reset, {reset_hz:,} Hz."
        raise table.error("clock_max_hz", what)
    if clock is not None and max_hz and clock.hz > max_hz:
        what = f"{clock.hz} Hz are above the chip's {max_hz} Hz."
        raise table.subtable("clock").error("hz", what)


def _check_wait_states(table: TomlTable, parts: Mapping[str, Any]) -> None:
    """Raise BoardError if a memory is too slow for the clock of modeled time."""
    calibration: Calibration | None = parts["calibration"]
    is_measured = calibration is not None and calibration.wait_states is not None
    reset_hz, max_hz = table.integer("clock_hz", 0), table.integer("clock_max_hz", 0)
    hz = _modeled_hz(parts["clock"], parts["run"], reset_hz, max_hz)
    regions: tuple[MemoryRegion, ...] = parts["memory"]
    for region in regions:
        if not (is_measured and region.kind == "flash"):
            try:
                region.at_clock(hz)
            except BoardError as error:
                raise table.error("clock", error.what, error.hint) from error


def _with_wait_states(board: Board) -> Board:
    """Return the board with the flash's wait states at its clock, or calibrated."""
    calibration = board.calibration
    if calibration is not None and calibration.wait_states is not None:
        waits = calibration.wait_states
        flash = replace(board.flash, wait_states=waits, wait_state_limits=())
        memory = [flash if r == board.flash else r for r in board.memory]
        board = replace(board, memory=tuple(memory))
    hz = _modeled_hz(board.clock, board.run, board.clock_hz, board.clock_max_hz)
    return board.at_clock(hz)


def _modeled_hz(clock: Clock | None, run: RunConfig, reset_hz: int, max_hz: int) -> int:
    """Return the clock of modeled time; 0 if unknown.

    Without a clock driver, an application's own start-up raises the clock.
    """
    if clock is not None:
        return clock.hz
    return reset_hz if run.kind == "qemu" else max_hz or reset_hz
