"""The clock that start-up raises a board to: which source, which frequency, the PLL's settings.

In: the table `[clock]` of a board. Out: a `Clock` whose settings reach the frequency exactly and
keep the chip's limits, those of its reference manual and data sheet (`clock_trees.py`). They become
macros of `fwr_board.h` for the port's `clock_DRIVER.c`.
"""

from __future__ import annotations

from dataclasses import dataclass

from firmwright.base.errors import BoardError
from firmwright.boards.clock_trees import CLOCK_TREES, Settings
from firmwright.boards.toml_table import TomlTable

BUS_DIVIDER = "_DIVIDER"
"""What the name of a setting ends in that divides the processor's clock for a bus."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The driver's file, the frequencies of source and processor, the settings by name."""

    driver: str
    source_hz: int
    hz: int
    settings: Settings

    def bus_divider(self, bus: str) -> int | None:
        """What the bus divides the processor's clock by; None where the driver has no such bus."""
        return dict(self.settings).get(bus + BUS_DIVIDER)


def read_clock(table: TomlTable, port: str) -> Clock:
    """The clock that `table` describes; a BoardError names the limit that it breaks."""
    trees = CLOCK_TREES[port]
    tree = trees[table.choice("driver", tuple(trees))]
    internal = tree.internal_hz is not None
    table.expect_keys(("driver", "hz") if internal else ("driver", "crystal_hz", "hz"))
    source_hz = tree.internal_hz or table.integer("crystal_hz", minimum=1)
    hz = table.integer("hz", minimum=1)
    try:
        settings = tree.settings(source_hz, hz)
    except ValueError as limit:
        source = "the internal oscillator" if internal else "a crystal"
        what = f"{source} of {source_hz} Hz cannot give {hz} Hz: {limit}."
        raise BoardError(what, where=table.where("hz")) from limit
    return Clock(tree.driver, source_hz, hz, settings)
