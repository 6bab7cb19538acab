"""Which tools tests of a board need: arguments of the marker `qemu`."""

from __future__ import annotations

from firmwright.boards import Board


def tool_family(board: Board) -> str:
    """Return the family of compiler and emulator that a board's core needs."""
    return "arm" if board.port in ("cortex_m", "cortex_r") else board.port
