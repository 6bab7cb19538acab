"""A transport that comes back: when the port goes, it is opened again, and the session goes on.

In: how to open the other. Out: a Transport that never ends by itself until it could not be opened
for `patience_s`. What was under way is lost, and the session repeats it: a transfer goes on where
it was, a run is not run again. A firmware that restarted meanwhile says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from firmwright.base.errors import DeviceError
from firmwright.device.transport import Transport, has_baud

RETRY_S = 0.2


class ReconnectingTransport:
    """The transport that `reopen` gives, as often as it takes. It is opened in the constructor."""

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
        """The inner one's."""
        return self._inner.name

    def read(self, limit: int, timeout_s: float) -> bytes:
        """What comes; nothing at once after the line was opened again."""
        try:
            return self._inner.read(limit, timeout_s)
        except DeviceError as error:
            self._come_back(error)
            return b""

    def write(self, data: bytes) -> None:
        """Sends; what a line that goes takes with it is lost."""
        try:
            self._inner.write(data)
        except DeviceError as error:
            self._come_back(error)

    def set_baud(self, baud: int) -> None:
        """Changes the rate, also of a line that is opened again; 0: as it was opened."""
        self._baud = baud
        if has_baud(self._inner):
            self._inner.set_baud(baud)

    def close(self) -> None:
        """Gives the port back."""
        self._inner.close()

    def _come_back(self, error: DeviceError) -> None:
        self._inner.close()
        until = self._clock() + self._patience_s
        while self._clock() < until:
            self._sleep(RETRY_S)  # first too: a port may open and fail again at once
            try:
                self._inner = self._reopen()
            except DeviceError:
                continue
            self.set_baud(self._baud)
            self.reconnections += 1
            return
        raise error
