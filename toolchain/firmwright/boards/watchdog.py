"""A board's watchdog: read from `[watchdog]`, on where the board gives it a time-out.

In: the table and the clock that the chip starts with. Out: a `Watchdog`, or None where nobody asked
for it. The soc file has driver and address, the board's `timeout_ms`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from firmwright.base.errors import BoardError
from firmwright.boards.toml_table import TomlTable

WATCHDOGS: Final[dict[str, tuple[str, ...]]] = {
    "host": (),
    "cortex_m": ("cmsdk",),
    "riscv32": (),
}
_KEYS: Final = ("driver", "base", "clock_hz", "timeout_ms")
_TICKS_MAX: Final = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Watchdog:
    """It resets the chip where nobody feeds it for `timeout_ms`, which are `ticks` of its clock."""

    driver: str
    base: int
    timeout_ms: int
    ticks: int


def read_watchdog(table: TomlTable, port: str, clock_hz: int) -> Watchdog | None:
    """The watchdog, or None without a time-out; BoardError where the counter cannot count it."""
    table.expect_keys(_KEYS)
    driver = table.choice("driver", WATCHDOGS[port])
    timeout_ms = table.integer("timeout_ms", 0)
    ticks = table.integer("clock_hz", clock_hz) * timeout_ms // 1000
    if ticks > _TICKS_MAX:
        raise BoardError(
            f"{timeout_ms} ms are {ticks} ticks of the watchdog, which counts to {_TICKS_MAX}.",
            where=table.where("timeout_ms"),
        )
    return Watchdog(driver, table.integer("base"), timeout_ms, ticks) if timeout_ms else None
