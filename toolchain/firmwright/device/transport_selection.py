"""Selection of the transport to a board.

It is a host process, an emulator, a serial port, a debug probe or a plug-in.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from firmwright.artifacts import PreloadedMemory
from firmwright.base.errors import DeviceError, ToolMissingError, UsageError
from firmwright.boards import Board
from firmwright.device.gdb_client import GdbClient
from firmwright.device.process_transport import ProcessTransport
from firmwright.device.qemu_process import (
    QemuCommand,
    QemuMemoryTransport,
    QemuRttTransport,
    start_qemu,
)
from firmwright.device.rtt_transport import RttTransport
from firmwright.device.serial_port import (
    DEFAULT_BAUD,
    SerialTransport,
    find_serial_port,
    usb_ports,
)
from firmwright.device.transport import Transport, has_baud
from firmwright.device.transport_plugins import (
    TransportRequest,
    is_plugin_port,
    load_transport_plugins,
    plugin_for_board,
    plugin_for_port,
)

log = logging.getLogger(__name__)

EXTERNAL_MEMORY_VARIABLE = "FWR_EXTERNAL"
"""The environment variable that names the external-memory file of host firmware."""
RTT_SCHEME = "rtt://"
RECONNECT_S = 5.0
"""Time allowed for a disconnected port to reappear."""


def takes_image(port: str) -> bool:
    """Return whether the transport starts the image: not if it runs behind `port`."""
    return not port or is_plugin_port(port)


def open_transport(
    board: Board,
    elf: Path,
    *,
    port: str = "",
    baud: int = DEFAULT_BAUD,
    plugin: str = "",
    loads: Sequence[PreloadedMemory] = (),
    through_memory: bool = False,
) -> Transport:
    """Open the transport to `board` with the firmware `elf`.

    A `port` (device name or pyserial URL) takes precedence over the board's `[run]`
    table. With `rtt://HOST:PORT`, the link uses memory through the GDB server of a
    debug probe. Without a port, a serial board is found by its USB ids. While none is
    connected, the emulator of the board's file runs the firmware, and a warning says
    so.

    `loads` are copied into an emulator's memory; on a port they must be in place.
    `plugin` is a QEMU plugin argument, ignored elsewhere. With `through_memory`, large
    inputs and outputs of an emulator do not pass its UART; a system without socket
    pairs ignores this.
    """
    request = TransportRequest(board, elf, port, baud, tuple(loads))
    if port.startswith(RTT_SCHEME) and not board.is_host:
        stub = GdbClient(port.removeprefix(RTT_SCHEME))
        return RttTransport(stub, board.ram.start, board.ram.size_bytes, port)
    if port:
        open_plugin = plugin_for_port(port)
        if open_plugin is not None:
            return open_plugin(request)
        return _reconnecting(port, baud)
    match board.run.kind:
        case "host":
            environment = {}
            if loads:
                external = loads[0].file.absolute()
                environment[EXTERNAL_MEMORY_VARIABLE] = str(external)
            name = f"{board.name} firmware {elf}"
            return ProcessTransport([elf], name=name, environment=environment)
        case "qemu":
            return _open_qemu(request, plugin, through_memory)
        case "serial":
            return _open_serial(request)
        case "plugin":
            return plugin_for_board(board)(request)


def _open_qemu(
    request: TransportRequest, plugin: str, through_memory: bool
) -> Transport:
    board, run = request.board, request.board.run
    command = QemuCommand(
        run.machine,
        request.elf,
        run.program,
        tuple(run.args),
        plugin=plugin,
        loads=request.loads,
    )
    if board.console.driver == "rtt":
        return QemuRttTransport(command, board)
    if through_memory and os.name == "posix":
        return QemuMemoryTransport(command)
    return start_qemu(command)


def _open_serial(request: TransportRequest) -> Transport:
    """Open the port of a board, or the emulator of one that is not connected."""
    board = request.board
    if is_emulated_chip(board):
        return _open_emulator(request)
    return _reconnecting(_find_port(board), request.baud)


def is_emulated_chip(board: Board, port: str = "") -> bool:
    """Return whether an emulator of the chip runs the firmware of a real board."""
    if board.run.kind != "serial" or board.emulator is None:
        return False
    if port:
        return port.startswith(f"{board.emulator.transport}://")
    has_uart = board.console.driver not in ("none", "rtt")
    return has_uart and not is_connected(board)


def is_connected(board: Board) -> bool:
    """Return whether a port has one of the USB ids of the board."""
    known = set(board.flash_tools.usb)
    return any(port.usb in known for port in usb_ports())


def _open_emulator(request: TransportRequest) -> Transport:
    """Start the emulator of a board that is not connected, if it is installed."""
    board, emulator = request.board, request.board.emulator
    assert emulator is not None, "the caller checks it"
    open_plugin = load_transport_plugins().get(emulator.transport)
    if open_plugin is None:
        return _reconnecting(_find_port(board), request.baud)
    try:
        transport = open_plugin(request)
    except ToolMissingError as error:
        what = "no such board is connected."
        hint = "connect it, or name its port with --port; or emulate its chip: "
        raise DeviceError(what, where=board.name, hint=f"{hint}{error.hint}") from error
    log.warning(
        "%s is not connected: %s runs the firmware.", board.name, transport.name
    )
    return transport


def _find_port(board: Board) -> str:
    """Return the serial port that has the USB ids of the board."""
    if board.console.driver == "none":
        what = "the board has no console, so the link cannot reach its firmware."
        hint = 'another driver in its [console], such as "rtt".'
        raise UsageError(what, where=board.name, hint=hint)
    if board.console.driver == "rtt":
        what = "the link uses memory that a debug probe reads, and none was named."
        hint = (
            "--port rtt://localhost:3333, the GDB server of OpenOCD, or --port "
            "socket://localhost:9090, the RTT server of a probe."
        )
        raise UsageError(what, where=board.name, hint=hint)
    return find_serial_port(board.name, board.flash_tools.usb, usb_ports())


def _reconnecting(port: str, baud: int) -> Transport:
    def open_port() -> SerialTransport:
        return SerialTransport(port, baud=baud)

    return ReconnectingTransport(open_port, patience_s=RECONNECT_S)


RETRY_S = 0.2


class ReconnectingTransport:
    """The transport of `reopen`, opened immediately and again after a disconnect."""

    def __init__(
        self,
        reopen: Callable[[], Transport],
        *,
        patience_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._reopen = reopen
        self._patience_s = patience_s
        self._clock = clock
        self._sleep = sleep
        self._inner = reopen()
        self._baud = 0
        self.reconnections = 0

    @property
    def name(self) -> str:
        return self._inner.name

    def read(self, limit: int, timeout_s: float) -> bytes:
        """Return received bytes; return b"" immediately after a reconnect."""
        try:
            return self._inner.read(limit, timeout_s)
        except DeviceError as error:
            self._come_back(error)
            return b""

    def write(self, data: bytes) -> None:
        """Send the data, which is lost if the line disconnects."""
        try:
            self._inner.write(data)
        except DeviceError as error:
            self._come_back(error)

    def set_baud(self, baud: int) -> None:
        """Change the rate, also for later reconnects; 0 restores the initial rate."""
        self._baud = baud
        if has_baud(self._inner):
            self._inner.set_baud(baud)

    def close(self) -> None:
        self._inner.close()

    def _come_back(self, error: DeviceError) -> None:
        self._inner.close()
        until = self._clock() + self._patience_s
        while self._clock() < until:
            # Also before the first attempt: a port may fail again at once.
            self._sleep(RETRY_S)
            try:
                self._inner = self._reopen()
            except DeviceError:
                continue
            self.set_baud(self._baud)
            self.reconnections += 1
            return
        raise error
