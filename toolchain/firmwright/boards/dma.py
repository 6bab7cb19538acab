"""A DMA controller that copies from memory to memory: read from `[dma]`.

In: the table of a board or soc. Out: `DmaController`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from firmwright.boards.toml_table import TomlTable

DMA_DRIVERS: Final = {"host": (), "cortex_m": ("pl081",), "riscv32": ()}
"""The drivers that each port has: `dma_DRIVER.c` in its folder."""
DMA_DEVICE: Final = "dma0"
"""The device that does a program's copies from memory to memory, where there is one."""


@dataclass(frozen=True, slots=True)
class DmaController:
    """The address of its registers, and the number of the interrupt that tells of an end."""

    driver: str
    base: int
    interrupt: int


def read_dma(table: TomlTable, port: str) -> DmaController:
    """The table's values; BoardError for what no driver of the port can be."""
    table.expect_keys(("driver", "base", "interrupt"))
    return DmaController(
        driver=table.choice("driver", DMA_DRIVERS[port]),
        base=table.integer("base"),
        interrupt=table.integer("interrupt", minimum=0),
    )
