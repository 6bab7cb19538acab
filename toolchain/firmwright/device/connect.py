"""From a board and its image to a transport: a process, an emulator, or a serial port.

In: a Board and the ELF of its firmware (for a physical board the port it is on; it is flashed
already). Out: an open Transport with the firmware running or waiting behind it.
"""

from __future__ import annotations

from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.boards import Board
from firmwright.device.host_process import ProcessTransport
from firmwright.device.qemu import QemuCommand, start_qemu
from firmwright.device.serial_port import DEFAULT_BAUD, SerialTransport
from firmwright.device.transport import Transport


def open_transport(
    board: Board, elf: Path, *, port: str = "", baud: int = DEFAULT_BAUD, plugin: str = ""
) -> Transport:
    """The way to `board`'s firmware. A `port` (device or pyserial URL) wins over the board's own.

    `plugin` is for an emulator, see `QemuCommand`; nothing else has any.

    Raises ToolMissingError, DeviceError if a port cannot be opened, UsageError if one is needed.
    """
    if port:
        return SerialTransport(port, baud=baud)
    match board.run.kind:
        case "host":
            return ProcessTransport([elf], name=f"{board.name} firmware {elf}")
        case "qemu":
            run = board.run
            extra = tuple(run.args)
            return start_qemu(QemuCommand(run.machine, elf, run.program, extra, plugin=plugin))
        case "serial":
            raise UsageError(
                "the board is reached over a serial port, and none was named.",
                where=board.name,
                hint="name the port, such as /dev/ttyACM0.",
            )
