"""Selection of the transport to a board: host process, emulator, serial port, probe or plug-in."""

from collections.abc import Sequence
from pathlib import Path

from firmwright.artifacts import PreloadedMemory
from firmwright.boards import Board
from firmwright.device.gdb_client import GdbClient
from firmwright.device.process_transport import ProcessTransport
from firmwright.device.qemu_process import QemuCommand, open_qemu_rtt, start_qemu
from firmwright.device.reconnecting_transport import ReconnectingTransport
from firmwright.device.rtt_transport import RttTransport
from firmwright.device.serial_port import DEFAULT_BAUD, SerialTransport, find_serial_port, usb_ports
from firmwright.device.transport import Transport
from firmwright.device.transport_plugins import TransportRequest, plugin_for_board, plugin_for_port

EXTERNAL_MEMORY_VARIABLE = "FWR_EXTERNAL"
"""The environment variable that names the external-memory file of host firmware."""
RTT_SCHEME = "rtt://"
RECONNECT_S = 5.0
"""Time allowed for a disconnected port to reappear."""


def open_transport(
    board: Board,
    elf: Path,
    *,
    port: str = "",
    baud: int = DEFAULT_BAUD,
    plugin: str = "",
    loads: Sequence[PreloadedMemory] = (),
) -> Transport:
    """Open the transport to `board` with the firmware `elf`.

    A `port` (device name or pyserial URL) takes precedence over the board's `[run]` table. With
    `rtt://HOST:PORT`, the link uses memory through the GDB server of a debug probe. Without a port,
    a serial board is found by its USB ids.

    `loads` are copied into an emulator's memory; on a port they must be in place. `plugin` is a
    QEMU plugin argument, ignored elsewhere.
    """
    request = TransportRequest(board, elf, port, baud, tuple(loads))
    if port.startswith(RTT_SCHEME) and not board.is_host:
        stub = GdbClient(port.removeprefix(RTT_SCHEME))
        return RttTransport(stub, board.ram.start, board.ram.size_bytes, port)
    if port:
        open_plugin = plugin_for_port(port)
        return _reconnecting(port, baud) if open_plugin is None else open_plugin(request)
    match board.run.kind:
        case "host":
            external = {EXTERNAL_MEMORY_VARIABLE: str(loads[0].file)} if loads else {}
            name = f"{board.name} firmware {elf}"
            return ProcessTransport([elf], name=name, environment=external)
        case "qemu":
            run = board.run
            command = QemuCommand(
                run.machine, elf, run.program, tuple(run.args), plugin=plugin, loads=tuple(loads)
            )
            if board.console.driver == "rtt":
                return open_qemu_rtt(command, board)
            return start_qemu(command)
        case "serial":
            name = find_serial_port(board.name, board.flash_tools.usb, usb_ports())
            return _reconnecting(name, baud)
        case "plugin":
            return plugin_for_board(board)(request)


def _reconnecting(port: str, baud: int) -> Transport:
    return ReconnectingTransport(lambda: SerialTransport(port, baud=baud), patience_s=RECONNECT_S)
