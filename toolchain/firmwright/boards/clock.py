"""The clock that start-up raises a board to: which crystal, which frequency, the PLL's settings.

In: the table `[clock]` of a board. Out: a `Clock` whose settings reach the frequency exactly and
keep the chip's limits, those of its reference manual and data sheet. They become macros of
`fwr_board.h` for the port's `clock_DRIVER.c`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from firmwright.base.errors import BoardError
from firmwright.boards.table import Table

Settings = tuple[tuple[str, int], ...]
_MHZ: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Clock:
    """A driver, the frequency of the crystal and of the processor, the PLL's settings by name."""

    driver: str
    crystal_hz: int
    hz: int
    settings: Settings


def stm32f100_settings(crystal_hz: int, hz: int) -> Settings:
    """One multiplier (RM0041, 6.3.2: 2 to 16; data sheet: 4 to 24 MHz in, 16 to 24 MHz out).

    No bus needs a divider and the flash no wait state: 24 MHz is within the limits of all.
    """
    _require(4 * _MHZ <= crystal_hz <= 24 * _MHZ, "the crystal has 4 to 24 MHz on this chip")
    _require(16 * _MHZ <= hz <= 24 * _MHZ, "the PLL gives 16 to 24 MHz on this chip")
    multiplier, rest = divmod(hz, crystal_hz)
    _require(rest == 0 and 2 <= multiplier <= 16, "the PLL multiplies the crystal by 2 to 16")
    return (("PLL_MULTIPLIER", multiplier),)


_TREES: Final[dict[str, dict[str, Callable[[int, int], Settings]]]] = {
    "host": {},
    "cortex_m": {"stm32f100": stm32f100_settings},
    "riscv32": {},
}


def read_clock(table: Table, port: str) -> Clock:
    """The clock that `table` describes; a BoardError names the limit that it breaks."""
    table.expect_keys(("driver", "crystal_hz", "hz"))
    trees = _TREES[port]
    driver = table.choice("driver", tuple(trees))
    crystal_hz = table.integer("crystal_hz", minimum=1)
    hz = table.integer("hz", minimum=1)
    try:
        settings = trees[driver](crystal_hz, hz)
    except ValueError as limit:
        what = f"a crystal of {crystal_hz} Hz cannot give {hz} Hz: {limit}."
        raise BoardError(what, where=table.where("hz")) from limit
    return Clock(driver, crystal_hz, hz, settings)


def _require(holds: bool, limit: str) -> None:
    if not holds:
        raise ValueError(limit)
