"""Discovery of a board's serial port by USB vendor and product id.

If several ports match, the caller's `choose` picks one; otherwise the error lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serial.tools import list_ports

from firmwright.base.errors import DeviceError, UsageError


@dataclass(frozen=True, slots=True)
class SerialPortInfo:
    """A serial port: name, "vendor:product" in hexadecimal, serial number and description."""

    name: str
    usb: str
    serial_number: str
    description: str

    def __str__(self) -> str:
        number = f" {self.serial_number}" if self.serial_number else ""
        return f"{self.name} ({self.usb}{number}, {self.description})"


PortChooser = Callable[[Sequence[SerialPortInfo]], SerialPortInfo]


def usb_ports() -> tuple[SerialPortInfo, ...]:
    ports = [
        SerialPortInfo(
            p.device, f"{p.vid:04x}:{p.pid:04x}", p.serial_number or "", p.description or ""
        )
        for p in list_ports.comports()
        if p.vid is not None and p.pid is not None
    ]
    return tuple(sorted(ports, key=lambda port: port.name))


def find_serial_port(
    board: str,
    usb: Sequence[str],
    ports: Sequence[SerialPortInfo],
    choose: PortChooser | None = None,
) -> str:
    if not usb:
        raise UsageError(
            "the board needs a serial port, and none was given.",
            where=board,
            hint="give the port: --port /dev/ttyACM0.",
        )
    fitting = [port for port in ports if port.usb in usb]
    if len(fitting) == 1:
        return fitting[0].name
    if fitting and choose is not None:
        return choose(fitting).name
    if fitting:
        listed = "; ".join(map(str, fitting))
        what = f"{len(fitting)} ports match this board: {listed}."
        raise UsageError(what, where=board, hint="choose one with --port.")
    seen = "; ".join(map(str, ports)) or "none"
    raise DeviceError(
        f"no port has USB id {' or '.join(usb)}; available ports: {seen}.",
        where=board,
        hint="connect the board, or give its port with --port.",
    )
