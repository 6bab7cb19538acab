"""Renode and Arm's FVPs as transports: their command lines, and the socket that their UART is.

In: an `TransportRequest`. Out: a Transport that ends the emulator with it. Written from the
programs' documentation; neither was at hand to be tried.
"""

from __future__ import annotations

import re
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final

from firmwright.base.errors import DeviceError, DeviceTimeoutError, ToolMissingError
from firmwright.device.process_transport import ProcessTransport
from firmwright.device.serial_transport import SerialTransport
from firmwright.device.transport import Transport
from firmwright.device.transport_plugins import TransportRequest

START_S: Final = 30.0
_LISTENS: Final = re.compile(rb"Listening for serial connection on port (\d+)")
_UART: Final = "sysbus.uart0"


def renode_command(opening: TransportRequest, port: int) -> list[str]:
    """Renode without a window; `machine` is a platform description, `args[0]` the UART's path."""
    run = opening.board.run
    uart = run.args[0] if run.args else _UART
    script = "; ".join(
        (
            "mach create",
            f"machine LoadPlatformDescription @{run.machine}",
            f"sysbus LoadELF @{opening.elf}",
            f'emulation CreateServerSocketTerminal {port} "link" false',
            f"connector Connect {uart} link",
            "start",
        )
    )
    return [run.program or "renode", "--disable-xwt", "--plain", "--console", "-e", script]


def fvp_command(opening: TransportRequest) -> list[str]:
    """A Fixed Virtual Platform; `program` is its name, `args` its parameters."""
    run = opening.board.run
    quiet = ("-C", f"{run.machine}.telnetterminal0.start_telnet=0")
    said = ("-C", f"{run.machine}.telnetterminal0.quiet=0")
    return [run.program, *quiet, *said, *run.args, "-a", str(opening.elf)]


def open_renode(opening: TransportRequest) -> Transport:
    """Its server socket is opened by us, so we know the port."""
    port = _free_port()
    command = renode_command(opening, port)
    process = _start(command, "renode.io has packages.")
    return _connected(process, lambda: port)


def open_fvp(opening: TransportRequest) -> Transport:
    """It says itself on which port its first UART listens."""
    command = fvp_command(opening)
    process = _start(command, "Arm's Ecosystem FVPs are at developer.arm.com.")
    heard = bytearray()

    def port() -> int | None:
        heard.extend(process.read(4096, 0.1))
        found = _LISTENS.search(heard)
        return int(found[1]) if found else None

    return _connected(process, port)


class EmulatorTransport:
    """A socket to an emulator's UART, and the emulator's process."""

    def __init__(self, process: ProcessTransport, line: SerialTransport) -> None:
        self._process = process
        self._line = line

    @property
    def name(self) -> str:
        """The emulator's."""
        return self._process.name

    def read(self, limit: int, timeout_s: float) -> bytes:
        """From the socket."""
        return self._line.read(limit, timeout_s)

    def write(self, data: bytes) -> None:
        """To the socket."""
        self._line.write(data)

    def close(self) -> None:
        """Hangs up and ends the emulator."""
        self._line.close()
        self._process.close()


def _start(command: Sequence[str], where_to_get: str) -> ProcessTransport:
    if shutil.which(command[0]) is None:
        raise ToolMissingError(f"{command[0]} is not installed.", hint=where_to_get)
    return ProcessTransport(command, name=command[0])


def _connected(process: ProcessTransport, port: Callable[[], int | None]) -> Transport:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            number = port()
            if number is not None:
                return EmulatorTransport(process, SerialTransport(f"socket://localhost:{number}"))
        except DeviceError:
            if not _runs(process):
                raise
        time.sleep(0.1)
    process.close()
    raise DeviceTimeoutError(
        f"nothing listens for the link within {START_S:g} s.",
        where=process.name,
        hint="try the emulator by hand; machine and args of the board's [run] go to it.",
    )


def _runs(process: ProcessTransport) -> bool:
    """Whether it has not ended by itself."""
    try:
        process.read(4096, 0.0)
    except DeviceError:
        return False
    return True


def _free_port() -> int:
    with socket.create_server(("localhost", 0)) as server:
        number: int = server.getsockname()[1]
        return number
