"""Where the resident loader lies, and the slots of flash that it puts images into.

In: the table `[bootloader]` of a board, and the board. Out: a `Bootloader`; boards as the loader,
an application in a slot, and a model in one are linked for. Invariants: a slot is whole pages, its
last one is the loader's; loader and slots do not overlap; the topmost bytes of RAM belong to what
loader and application say to each other.
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
"""What a loader may take of flash."""
HANDOFF_BYTES: Final = 16
SLOTS_MIN, SLOTS_MAX = 2, 4
BOOTLOADER_STACK_BYTES: Final = 512
BOOTLOADER_RAM_BYTES: Final = 1024
"""The topmost: what an application keeps over a restart lies at the beginning."""
BOOTLOADER_PAYLOAD_BYTES: Final = 272
"""Of a frame: 256 bytes of flash, and where they go."""
FLASH_DRIVERS: Final = {"cortex_m": ("memory", "nrf"), "riscv32": ("memory", "cfi")}
"""The flash drivers of each port: `flash_DRIVER.c` of the loader."""


@dataclass(frozen=True, slots=True)
class Bootloader:
    """A flash driver; `count` slots of `slot_bytes` from `start` on, in pages of `page_bytes`."""

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
        """For an image in a slot."""
        return self.slot_bytes - self.page_bytes


def read_bootloader(table: TomlTable, port: str, memory: Sequence[MemoryRegion]) -> Bootloader:
    """What `table` says. Without a start the slots are the flash behind the loader."""
    table.expect_keys(("driver", "page", "slots", "start", "size"))
    page = table.integer("page", minimum=256)
    count = table.integer("slots", SLOTS_MIN, minimum=SLOTS_MIN)
    flash = next(region for region in memory if region.kind == "flash")
    behind = flash.start + max(BOOTLOADER_BYTES, page)
    start = table.integer("start", behind)
    size = table.integer("size", max(flash.end - start, 0))
    loader = Bootloader(
        driver=table.choice("driver", FLASH_DRIVERS.get(port, ())),
        start=start,
        slot_bytes=size // count // page * page,
        page_bytes=page,
        count=count,
    )
    if page & (page - 1) or start % page:
        what = f"the slots begin at {start:#x}, in pages of {page} bytes, a power of two."
        raise BoardError(what, where=table.where("page"))
    if count > SLOTS_MAX:
        raise BoardError(f"{count} is above {SLOTS_MAX}.", where=table.where("slots"))
    if loader.slot_bytes < 2 * page and table.has("size"):
        what = f"{size} bytes are too few for {count} slots of two pages."
        raise BoardError(what, where=table.where("size"))
    if start < behind and flash.start < loader.end:
        what = f"the slots overlap the loader, which takes {flash.start:#x} to {behind:#x}."
        raise BoardError(what, where=table.where("start"))
    return loader


def _require_bootloader(board: Board) -> Bootloader:
    if board.bootloader is None:
        raise BoardError(
            "the board's file says nothing of a loader.",
            where=board.name,
            hint="a table [bootloader] with driver and page.",
        )
    if board.bootloader.slot_bytes < 2 * board.bootloader.page_bytes:
        raise BoardError(
            f"the flash behind the loader has no room for {board.bootloader.count} slots of two pages.",
            where=board.name,
            hint="a probe, or a boot ROM: --runner with one of the others.",
        )
    return board.bootloader


def board_for_bootloader(board: Board) -> Board:
    """The board as its loader is linked for it: on its reset clock, with little stack."""
    _require_bootloader(board)
    flash = replace(board.flash, size_bytes=BOOTLOADER_BYTES)
    below = _below_handoff(board)
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
        handoff=_handoff(board),
    )


def board_for_slot(board: Board, number: int) -> Board:
    """The board as an application in slot `number` is linked for it."""
    loader = _require_bootloader(board)
    return _with_slot(board, number, _below_handoff(board), loader)


def board_for_model_update(board: Board, number: int, ram_start: int) -> Board:
    """As a model alone is linked for that slot, with RAM from `ram_start` on."""
    loader = _require_bootloader(board)
    ram = _below_handoff(board)
    if not ram.start <= ram_start < ram.end:
        what = f"the application leaves RAM from {ram_start:#x} on, which is not in {ram.name}."
        raise BoardError(what, where=board.name)
    ram = replace(ram, start=ram_start, size_bytes=ram.end - ram_start)
    linked = _with_slot(board, number, ram, loader)
    return replace(linked, limits=replace(board.limits, fit_stack=False), is_model_update=True)


def _with_slot(board: Board, number: int, ram: MemoryRegion, loader: Bootloader) -> Board:
    start = loader.start + number * loader.slot_bytes
    slot = replace(board.flash, start=start, size_bytes=loader.room_bytes)
    others = tuple(
        region
        for region in board.memory
        if region not in (board.flash, board.ram)
        and not (region.start < loader.end and loader.start < region.end)
    )
    return replace(board, memory=(slot, ram, *others), handoff=_handoff(board))


def _below_handoff(board: Board) -> MemoryRegion:
    return replace(board.ram, size_bytes=board.ram.size_bytes - HANDOFF_BYTES)


def _handoff(board: Board) -> int:
    return board.ram.end - HANDOFF_BYTES
