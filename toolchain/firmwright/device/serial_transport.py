"""A serial port, or any URL that pyserial supports (`socket://...`), as a transport.

Every failure of the port, including a closed socket, raises a DeviceError that names it.
"""

from __future__ import annotations

import contextlib

import serial

from firmwright.base.errors import DeviceError

DEFAULT_BAUD = 115200
WRITE_TIMEOUT_S = 10.0
_GONE: tuple[type[Exception], ...] = (serial.SerialException, OSError)
"""The errors that a disconnected port raises; on POSIX, draining raises termios.error."""
with contextlib.suppress(ImportError):
    import termios

    _GONE = (*_GONE, termios.error)


class SerialTransport:
    """An exclusively opened port with 8 data bits, one stop bit and no flow control.

    The session never sends more than the firmware buffers. `parity` "E" selects even parity, which
    some boot ROMs require.
    """

    def __init__(self, url: str, *, baud: int = DEFAULT_BAUD, parity: str = "N") -> None:
        self._url = url
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
                raise DeviceError(
                    "the port is in use by another program.",
                    where=url,
                    hint="end the other session or monitor; `fuser` on the port names it.",
                ) from error
            raise DeviceError(
                f"the port cannot be opened: {error}.",
                where=url,
                hint="check the cable and the name; `ls /dev/tty*` lists ports, and on Linux the "
                "user must be in the group that owns it (dialout).",
            ) from error

    @property
    def name(self) -> str:
        return self._url

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
        # pyserial shuts a socket down before closing it. If the other side has disconnected,
        # it leaves the socket open.
        left_open = getattr(self._port, "_socket", None)
        self._port.close()
        if left_open is not None:
            left_open.close()

    def _gone(self, error: Exception) -> DeviceError:
        return DeviceError(
            f"the port failed: {error}.",
            where=self._url,
            hint="check that the board is still connected and powered.",
        )
