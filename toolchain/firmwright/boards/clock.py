"""The clock that start-up sets: `[clock]`, checked against the limits of its chip."""

from dataclasses import dataclass
from typing import Final

from firmwright.boards.clock_trees import CLOCK_TREES, Settings
from firmwright.boards.toml_table import TomlTable

BUS_DIVIDER: Final = "_DIVIDER"
"""Suffix of the settings that divide the processor's clock for a bus."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A clock driver, the source's and processor's frequencies, and its macros.

    `from_crystal` is whether the source is a crystal, `accepts_crystal` whether it may
    be one.
    """

    driver: str
    source_hz: int
    hz: int
    settings: Settings
    from_crystal: bool = False
    accepts_crystal: bool = False

    def bus_divider(self, bus: str) -> int | None:
        """Return the divider from processor clock to bus; None for an unknown bus."""
        return dict(self.settings).get(bus + BUS_DIVIDER)


def read_clock(table: TomlTable, port: str) -> Clock:
    """Read `[clock]`; BoardError if the frequency is beyond a limit of the chip."""
    trees = CLOCK_TREES[port]
    tree = trees[table.choice("driver", tuple(trees))]
    crystal_keys = ("crystal_hz",) if tree.accepts_crystal else ()
    table.expect_keys(("driver", *crystal_keys, "hz"))
    from_crystal = tree.internal_hz is None or table.has("crystal_hz")
    source_hz = tree.internal_hz or 0
    if from_crystal:
        source_hz = table.integer("crystal_hz", minimum=1)
    hz = table.integer("hz", minimum=1)
    try:
        settings = tree.solve(source_hz, hz, from_crystal=from_crystal)
    except ValueError as limit:
        source = "a crystal" if from_crystal else "the internal oscillator"
        what = f"{source} of {source_hz} Hz cannot give {hz} Hz: {limit}."
        raise table.error("hz", what) from limit
    return Clock(
        tree.driver, source_hz, hz, settings, from_crystal, tree.accepts_crystal
    )
