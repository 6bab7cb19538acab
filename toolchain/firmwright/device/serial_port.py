"""Serial ports: discovery by USB id, and a transport over one."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import serial
from serial.tools import list_ports

from firmwright.base.errors import DeviceError, UsageError

DEFAULT_BAUD = 115200
WRITE_TIMEOUT_S = 10.0
_GONE: tuple[type[Exception], ...] = (serial.SerialException, OSError)
"""The errors of a disconnected port; on POSIX, draining raises termios.error."""
with contextlib.suppress(ImportError):
    import termios

    _GONE = (*_GONE, termios.error)


@dataclass(frozen=True, slots=True)
class SerialPortInfo:
    """A serial port; `usb` is "vendor:product" in hexadecimal."""

    name: str
    usb: str
    serial_number: str
    description: str

    def __str__(self) -> str:
        number = f" {self.serial_number}" if self.serial_number else ""
        return f"{self.name} ({self.usb}{number}, {self.description})"


PortChooser = Callable[[Sequence[SerialPortInfo]], SerialPortInfo]


def usb_ports() -> tuple[SerialPortInfo, ...]:
    ports = []
    for port in list_ports.comports():
        if port.vid is not None and port.pid is not None:
            usb = f"{port.vid:04x}:{port.pid:04x}"
            number, description = port.serial_number or "", port.description or ""
            ports.append(SerialPortInfo(port.device, usb, number, description))
    return tuple(sorted(ports, key=lambda port: port.name))


def find_serial_port(
    board: str,
    usb: Sequence[str],
    ports: Sequence[SerialPortInfo],
    choose: PortChooser | None = None,
) -> str:
    """Return the only port with a USB id in `usb`; `choose` selects among several."""
    if not usb:
        what = "the board needs a serial port, and none was given."
        raise UsageError(what, where=board, hint="give the port: --port /dev/ttyACM0.")
    fitting = [port for port in ports if port.usb in usb]
    if not fitting:
        seen = "; ".join(map(str, ports)) or "none"
        what = f"no port has USB id {' or '.join(usb)}; available ports: {seen}."
        hint = "connect the board, or give its port with --port."
        raise DeviceError(what, where=board, hint=hint)
    if len(fitting) == 1:
        return fitting[0].name
    if choose is not None:
        return choose(fitting).name
    what = f"{len(fitting)} ports match this board: {'; '.join(map(str, fitting))}."
    raise UsageError(what, where=board, hint="choose one with --port.")


class SerialTransport:
    """An exclusively opened port.

    `url` may be any that pyserial supports, such as `socket://HOST:PORT`. `parity` "E"
    selects even parity, which some boot ROMs require.
    """

    def __init__(
        self, url: str, *, baud: int = DEFAULT_BAUD, parity: str = "N"
    ) -> None:
        self.name = url
        self._baud = baud
        try:
            self._port = serial.serial_for_url(
                url,
                baudrate=baud,
                parity=parity,
                timeout=0,
                write_timeout=WRITE_TIMEOUT_S,
                exclusive=True,
            )
        except (serial.SerialException, OSError, ValueError) as error:
            if "exclusively lock" in str(error):
                hint = "end the other session or monitor; `fuser` on the port names it."
                what = "the port is in use by another program."
                raise DeviceError(what, where=url, hint=hint) from error
            what = f"the port cannot be opened: {error}."
            hint = (
                "check the cable and the name; `ls /dev/tty*` lists ports, and on "
                "Linux the user must be in the group that owns it (dialout)."
            )
            raise DeviceError(what, where=url, hint=hint) from error

    def read(self, limit: int, timeout_s: float) -> bytes:
        """Wait for one byte, then return all that have arrived."""
        try:
            self._port.timeout = timeout_s
            first: bytes = self._port.read(1)
            if not first or limit == 1:
                return first
            self._port.timeout = 0
            rest: bytes = self._port.read(limit - 1)
        except _GONE as error:
            raise self._gone(error) from error
        return first + rest

    def write(self, data: bytes) -> None:
        try:
            self._port.write(data)
            self._port.flush()
        except _GONE as error:
            raise self._gone(error) from error

    def set_baud(self, baud: int) -> None:
        """Change the rate; 0 restores the initial rate. Sockets ignore the call."""
        try:
            self._port.baudrate = baud or self._baud
        except (serial.SerialException, OSError, ValueError) as error:
            raise self._gone(error) from error

    def close(self) -> None:
        # pyserial shuts a socket down before closing it. If the other side has
        # disconnected, it leaves the socket open.
        left_open = getattr(self._port, "_socket", None)
        self._port.close()
        if left_open is not None:
            left_open.close()

    def _gone(self, error: Exception) -> DeviceError:
        hint = "check that the board is still connected and powered."
        return DeviceError(f"the port failed: {error}.", where=self.name, hint=hint)
