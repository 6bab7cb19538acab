"""A transport that reopens its port after a disconnect.

Bytes in transit are lost, and the session repeats them. The transport fails only if the port
cannot be reopened within `patience_s`.
"""

import time
from collections.abc import Callable

from firmwright.base.errors import DeviceError
from firmwright.device.transport import Transport, has_baud

RETRY_S = 0.2


class ReconnectingTransport:
    """The transport that `reopen` returns, opened immediately and again after a disconnect."""

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
            self._sleep(RETRY_S)  # also before the first attempt: a port may fail again at once
            try:
                self._inner = self._reopen()
            except DeviceError:
                continue
            self.set_baud(self._baud)
            self.reconnections += 1
            return
        raise error
