"""Transports provided by other packages.

An entry point of the group `firmwright.transports` is a function that takes a
`TransportRequest` and returns an open `Transport`. A plug-in is selected by a board
with `kind = "plugin"` and `program = "NAME"` in its `[run]` table, or by a port
`NAME://...`. For an emulator with a socket as UART, where `EmulatorTransport` forwards
reads and writes:

    def open_emulator(request: TransportRequest) -> Transport:
        machine = request.board.run.machine
        command = ["emulator", machine, str(request.elf)]
        child = ProcessTransport(command, name=machine)
        return EmulatorTransport(child, SerialTransport("socket://localhost:3456"))
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from firmwright.artifacts import PreloadedMemory
from firmwright.base.errors import UsageError
from firmwright.base.plugin_calls import entry_points, load_entry_point
from firmwright.boards import Board
from firmwright.device.transport import Transport

ENTRY_POINT_GROUP: Final = "firmwright.transports"


@dataclass(frozen=True, slots=True)
class TransportRequest:
    """The board and firmware to connect to; `port` is the user's port, or empty.

    `elf` is the linked image, which is built before the plug-in is called.
    """

    board: Board
    elf: Path
    port: str
    baud: int
    loads: tuple[PreloadedMemory, ...] = ()


TransportFactory = Callable[[TransportRequest], Transport]


def load_transport_plugins() -> dict[str, TransportFactory]:
    plugins: dict[str, TransportFactory] = {}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        plugins[point.name] = cast(TransportFactory, load_entry_point(point))
    return plugins


def plugin_for_port(port: str) -> TransportFactory | None:
    if not is_plugin_port(port):
        return None
    scheme = port.partition("://")[0]
    return load_transport_plugins()[scheme]


def is_plugin_port(port: str) -> bool:
    """Return whether an installed plug-in provides the port's scheme."""
    scheme, colon, _ = port.partition("://")
    names = {point.name for point in entry_points(group=ENTRY_POINT_GROUP)}
    return bool(colon) and scheme in names


def plugin_for_board(board: Board) -> TransportFactory:
    """Return the plug-in of the board's `[run]` table; UsageError if not installed."""
    plugins = load_transport_plugins()
    if board.run.program not in plugins:
        installed = ", ".join(plugins) or "none is installed"
        what = f"no package provides the transport {board.run.program!r}."
        hint = f"install one (entry point {ENTRY_POINT_GROUP}); installed: {installed}."
        raise UsageError(what, where=board.name, hint=hint)
    return plugins[board.run.program]
