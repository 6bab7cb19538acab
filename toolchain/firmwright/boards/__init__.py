"""Board descriptions: the TOML files under `boards/`, checked and immutable."""

from firmwright.boards.clock import Clock
from firmwright.boards.load import list_boards, list_chips, load_board, load_chip
from firmwright.boards.memory import MemoryRegion
from firmwright.boards.peripherals import Console, PerformanceCounter
from firmwright.boards.schema import (
    Board,
    Compiler,
    Limits,
    RunConfig,
    with_const_pools,
)

__all__ = [
    "Board",
    "Clock",
    "Compiler",
    "Console",
    "Limits",
    "MemoryRegion",
    "PerformanceCounter",
    "RunConfig",
    "list_boards",
    "list_chips",
    "load_board",
    "load_chip",
    "with_const_pools",
]
