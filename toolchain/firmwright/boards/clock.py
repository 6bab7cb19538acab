"""The clock that start-up raises a board to: source, frequency and PLL settings."""

from __future__ import annotations

from dataclasses import dataclass

from firmwright.base.errors import BoardError
from firmwright.boards.clock_trees import CLOCK_TREES, Settings
from firmwright.boards.toml_table import TomlTable

BUS_DIVIDER = "_DIVIDER"
"""Suffix of the settings that divide the processor's clock for a bus."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A clock driver, the frequencies of source and processor, and the settings by name.

    The settings become macros of `fwr_board.h` for the port's `clock_DRIVER.c`.
    """

    driver: str
    source_hz: int
    hz: int
    settings: Settings

    def bus_divider(self, bus: str) -> int | None:
        """Return the divider from the processor's clock to the bus; None for an unknown bus."""
        return dict(self.settings).get(bus + BUS_DIVIDER)


def read_clock(table: TomlTable, port: str) -> Clock:
    """Read `[clock]`; BoardError if the frequency is beyond a limit of the chip."""
    trees = CLOCK_TREES[port]
    tree = trees[table.choice("driver", tuple(trees))]
    is_internal = tree.internal_hz is not None
    table.expect_keys(("driver", "hz") if is_internal else ("driver", "crystal_hz", "hz"))
    source_hz = tree.internal_hz or table.integer("crystal_hz", minimum=1)
    hz = table.integer("hz", minimum=1)
    try:
        settings = tree.settings(source_hz, hz)
    except ValueError as limit:
        source = "the internal oscillator" if is_internal else "a crystal"
        raise BoardError(
            f"{source} of {source_hz} Hz cannot give {hz} Hz: {limit}.", where=table.where("hz")
        ) from limit
    return Clock(tree.driver, source_hz, hz, settings)
