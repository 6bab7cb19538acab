"""Board descriptions: the TOML files under `boards/`, checked and immutable."""

from firmwright.boards.clock import Clock
from firmwright.boards.load import list_boards, load_board
from firmwright.boards.memory import MemoryRegion
from firmwright.boards.peripherals import Console, PerformanceCounter
from firmwright.boards.schema import Board, Compiler, Limits, RunConfig

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
    "load_board",
]
