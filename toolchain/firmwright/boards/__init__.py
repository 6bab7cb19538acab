"""Boards as data: what the TOML files under `boards/` say, checked and frozen."""

from firmwright.boards.clock import Clock
from firmwright.boards.load import list_boards, load_board
from firmwright.boards.memory import MemoryRegion
from firmwright.boards.schema import Board, Console, Limits, PerformanceCounter, RunConfig

__all__ = [
    "Board",
    "Clock",
    "Console",
    "Limits",
    "MemoryRegion",
    "PerformanceCounter",
    "RunConfig",
    "list_boards",
    "load_board",
]
