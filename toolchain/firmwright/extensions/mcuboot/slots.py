"""The slots of a board's MCUboot, as imgtool and SMP servers need them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from firmwright.boards.extension_tables import TableReader
from firmwright.boards.memory import MemoryRegion
from firmwright.boards.toml_table import TomlKey, TomlTable, read_table

HEADER_BYTES_MIN: Final = 32
ALIGNMENTS: Final = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class McubootSlots:
    """The primary slots of a flash map.

    `slots` has for image 0, 1, ... the memory region of its payload and the size of its
    slot. A payload follows a header of `header_bytes`; `align` is the write size of the
    flash. `smp_server` is the receiver of updates: MCUboot's serial recovery or the
    application.
    """

    slots: tuple[tuple[str, int], ...]
    header_bytes: Annotated[int, TomlKey("header", minimum=HEADER_BYTES_MIN)]
    align: int = 4
    smp_server: Literal["mcuboot", "application"] = "mcuboot"


def read_mcuboot(table: TomlTable, memory: Sequence[MemoryRegion]) -> McubootSlots:
    """Read `[mcuboot]`; the first slot must hold the program."""
    rows = table.subtable("slots")
    slots = tuple((name, rows.integer(name, minimum=1)) for name in rows.values)
    read = read_table(table, McubootSlots, slots=slots)
    if read.align not in ALIGNMENTS:
        known = ", ".join(map(str, ALIGNMENTS))
        raise table.error("align", f"{read.align} is not one of {known}.")
    regions = {region.name: region for region in memory}
    program = next(region.name for region in memory if region.kind == "flash")
    if not slots or slots[0][0] != program:
        what = f"the first slot must be that of the program, {program}."
        raise table.error("slots", what)
    for name, slot_bytes in slots:
        if name not in regions:
            known = ", ".join(regions)
            raise rows.error(name, f"no memory region has this name; use {known}.")
        need = read.header_bytes + regions[name].size_bytes
        if need > slot_bytes:
            what = f"header and region have {need} bytes, the slot {slot_bytes}."
            raise rows.error(name, what)
    return read


BOARD_TABLES: Mapping[str, TableReader] = {"mcuboot": read_mcuboot}
