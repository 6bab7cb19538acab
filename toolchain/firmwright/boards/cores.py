"""Further cores of a chip, like the first one: how many there are and what wakes them.

In: the table `[cores]` of a board or soc. Out: `Cores`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from firmwright.boards.toml_table import TomlTable

CORES_DRIVERS: Final = {"host": (), "cortex_m": ("sse200",), "riscv32": ()}
"""The drivers that each port has: `cores_DRIVER.c` in its folder."""
HOST_CORES: Final = 8
"""As many as one likes: on the host each is a stand-in that works when it is asked to."""


@dataclass(frozen=True, slots=True)
class Cores:
    """`count` cores in all; `base` is the address of the registers that wake the others."""

    driver: str
    base: int
    count: int


def read_cores(table: TomlTable, port: str) -> Cores:
    """The table's values; BoardError for what no driver of the port can be."""
    table.expect_keys(("driver", "base", "count"))
    return Cores(
        driver=table.choice("driver", CORES_DRIVERS[port]),
        base=table.integer("base"),
        count=table.integer("count", minimum=2),
    )


def core_count(cores: Cores | None, *, is_host: bool) -> int:
    """The cores of a board that may share a model."""
    if is_host:
        return HOST_CORES
    return 1 if cores is None else cores.count
