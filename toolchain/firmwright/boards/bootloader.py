"""The bootloader of a board: its flash slots, and the board as seen by images linked for it.

The last page of a slot holds the bootloader's record of that slot. The topmost bytes of RAM are
shared by bootloader and application.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from firmwright.base.errors import BoardError
from firmwright.boards.toml_table import TomlTable

if TYPE_CHECKING:
    from firmwright.boards.memory import MemoryRegion
    from firmwright.boards.schema import Board

BOOTLOADER_BYTES: Final = 4096
"""Flash reserved for the bootloader."""
HANDOFF_BYTES: Final = 16
SLOTS_MIN, SLOTS_MAX = 2, 4
BOOTLOADER_STACK_BYTES: Final = 512
BOOTLOADER_RAM_BYTES: Final = 1024
"""Taken from the end of RAM: an application keeps data over a restart at the beginning."""
BOOTLOADER_PAYLOAD_BYTES: Final = 272
"""Largest payload of a frame: 256 bytes of flash and their address."""
FLASH_DRIVERS: Final = {"cortex_m": ("memory", "nrf"), "riscv32": ("memory", "cfi")}
"""The bootloader's flash drivers by port: `flash_DRIVER.c`."""


@dataclass(frozen=True, slots=True)
class Bootloader:
    """A flash driver and `count` slots of `slot_bytes` from `start`, in pages of `page_bytes`."""

    driver: str
    start: int
    slot_bytes: int
    page_bytes: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.count * self.slot_bytes

    @property
    def room_bytes(self) -> int:
        """The largest image that fits into a slot."""
        return self.slot_bytes - self.page_bytes


def read_bootloader(table: TomlTable, port: str, memory: Sequence[MemoryRegion]) -> Bootloader:
    """Read `[bootloader]`; by default the slots take all flash after the bootloader."""
    table.expect_keys(("driver", "page", "slots", "start", "size"))
    page = table.integer("page", minimum=256)
    count = table.integer("slots", SLOTS_MIN, minimum=SLOTS_MIN, maximum=SLOTS_MAX)
    flash = next(region for region in memory if region.kind == "flash")
    first_free = flash.start + max(BOOTLOADER_BYTES, page)
    start = table.integer("start", first_free)
    size = table.integer("size", max(flash.end - start, 0))
    driver = table.choice("driver", FLASH_DRIVERS.get(port, ()))
    bootloader = Bootloader(driver, start, size // count // page * page, page, count)
    if page & (page - 1) or start % page:
        raise table.error(
            "page", f"{page} bytes are not a power of two, or do not divide the start {start:#x}."
        )
    if bootloader.slot_bytes < 2 * page and table.has("size"):
        raise table.error("size", f"{size} bytes are too few for {count} slots of two pages.")
    if start < first_free and flash.start < bootloader.end:
        raise table.error(
            "start", f"the slots overlap the bootloader at {flash.start:#x} to {first_free:#x}."
        )
    return bootloader


def _require_bootloader(board: Board) -> Bootloader:
    if board.bootloader is None:
        what = "the board's file does not describe a bootloader."
        hint = "add a table [bootloader] with driver and page."
        raise BoardError(what, where=board.name, hint=hint)
    if board.bootloader.slot_bytes < 2 * board.bootloader.page_bytes:
        raise BoardError(
            f"the flash after the bootloader is too small for {board.bootloader.count} slots of "
            "two pages.",
            where=board.name,
            hint="flash by a probe or a boot ROM: --runner with one of the others.",
        )
    return board.bootloader


def board_for_bootloader(board: Board) -> Board:
    """Return `board` as seen by its bootloader: reset clock, small stack, little RAM."""
    _require_bootloader(board)
    flash = replace(board.flash, size_bytes=BOOTLOADER_BYTES)
    below = _ram_below_handoff(board)
    ram = replace(below, start=below.end - BOOTLOADER_RAM_BYTES, size_bytes=BOOTLOADER_RAM_BYTES)
    others = tuple(r for r in board.memory if r not in (board.flash, board.ram))
    limits = replace(
        board.limits,
        stack_bytes=BOOTLOADER_STACK_BYTES,
        fit_stack=False,
        link_payload_bytes=BOOTLOADER_PAYLOAD_BYTES,
    )
    return replace(
        board,
        memory=(flash, ram, *others),
        clock=None,
        limits=limits,
        handoff=_handoff_address(board),
    )


def board_for_slot(board: Board, number: int) -> Board:
    """Return `board` as seen by an application in slot `number`."""
    return _with_slot(board, number, _ram_below_handoff(board), _require_bootloader(board))


def board_for_model_update(board: Board, number: int, ram_start: int) -> Board:
    """Return `board` as seen by a model in slot `number`, linked without the application."""
    bootloader = _require_bootloader(board)
    ram = _ram_below_handoff(board)
    if not ram.start <= ram_start < ram.end:
        what = f"the application's free RAM begins at {ram_start:#x}, which is not in {ram.name}."
        raise BoardError(what, where=board.name)
    ram = replace(ram, start=ram_start, size_bytes=ram.end - ram_start)
    linked = _with_slot(board, number, ram, bootloader)
    return replace(linked, limits=replace(board.limits, fit_stack=False), is_model_update=True)


def _with_slot(board: Board, number: int, ram: MemoryRegion, bootloader: Bootloader) -> Board:
    start = bootloader.start + number * bootloader.slot_bytes
    slot = replace(board.flash, start=start, size_bytes=bootloader.room_bytes)
    others = tuple(
        region
        for region in board.memory
        if region not in (board.flash, board.ram)
        and not (region.start < bootloader.end and bootloader.start < region.end)
    )
    return replace(board, memory=(slot, ram, *others), handoff=_handoff_address(board))


def _ram_below_handoff(board: Board) -> MemoryRegion:
    return replace(board.ram, size_bytes=board.ram.size_bytes - HANDOFF_BYTES)


def _handoff_address(board: Board) -> int:
    return board.ram.end - HANDOFF_BYTES
