"""Ways to firmware by name: what packages offer besides our own.

In: a board and its firmware. Out: a Transport. An entry point of the group `firmwright.transports`
is a function from the one (`TransportRequest`) to the other. It is used by its name: for a board
whose `[run]` says `kind = "plugin"` and `program = "NAME"`, and for a port `NAME://...`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final, cast

from firmwright.artifacts import PreloadedMemory
from firmwright.base.errors import UsageError
from firmwright.boards import Board
from firmwright.device.transport import Transport

ENTRY_POINT_GROUP: Final = "firmwright.transports"


@dataclass(frozen=True, slots=True)
class TransportRequest:
    """The firmware that is to run, and where. `port` is what the user named, or empty."""

    board: Board
    elf: Path
    port: str
    baud: int
    loads: tuple[PreloadedMemory, ...] = ()


TransportFactory = Callable[[TransportRequest], Transport]


def load_transport_plugins() -> dict[str, TransportFactory]:
    """What packages offer, by name."""
    points = sorted(
        entry_points(group=ENTRY_POINT_GROUP), key=lambda point: (point.name, point.value)
    )
    return {point.name: cast(TransportFactory, point.load()) for point in points}


def plugin_for_port(port: str) -> TransportFactory | None:
    """The opener that the scheme of `port` names, if it is a package's."""
    scheme, colon, _ = port.partition("://")
    names = {point.name for point in entry_points(group=ENTRY_POINT_GROUP)}
    return load_transport_plugins()[scheme] if colon and scheme in names else None


def plugin_for_board(board: Board) -> TransportFactory:
    """The opener that the board's `[run]` names; UsageError if no package has it."""
    found = load_transport_plugins()
    if board.run.program not in found:
        known = ", ".join(found) or "none is installed"
        raise UsageError(
            f"no package offers the transport {board.run.program!r}.",
            where=board.name,
            hint=f"install the one that does (entry point {ENTRY_POINT_GROUP}); offered: {known}.",
        )
    return found[board.run.program]
