"""What the link runs over: a stream of bytes that may lose, damage or end.

`Transport` is all that a session asks of a UART, a pty, a socket, or a child process. Damage is
the session's business; an end is the transport's, which says clearly what ended and why.
`FaultyTransport` wraps another and spoils its bytes from a seed: the link's own crash test.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol, TypeGuard


class Transport(Protocol):
    """Bytes to and from one firmware. Closing twice is allowed."""

    @property
    def name(self) -> str:
        """What the user knows it by, for errors: a port, a command, a board."""
        ...

    def read(self, limit: int, timeout_s: float) -> bytes:
        """Up to `limit` bytes, as soon as there are any; empty if none came in time.

        Raises DeviceError if the other side is gone for good.
        """
        ...

    def write(self, data: bytes) -> None:
        """Sends all of it. Raises DeviceError if the other side is gone for good."""
        ...

    def close(self) -> None:
        """Gives the port back, or ends the process."""
        ...


class BaudTransport(Transport, Protocol):
    """One whose rate can be changed."""

    def set_baud(self, baud: int) -> None:
        """Changes the rate, after all that was written has left; 0: as it was opened."""
        ...


def has_baud(transport: Transport) -> TypeGuard[BaudTransport]:
    """Whether the transport is one whose rate can be changed."""
    return hasattr(transport, "set_baud")


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Chance, for each byte in each direction, of one flipped bit, of loss, of coming twice."""

    flip: float = 0.0
    drop: float = 0.0
    duplicate: float = 0.0


class FaultyTransport:
    """Another transport through a bad line. The same seed and bytes give the same damage."""

    def __init__(self, inner: Transport, rates: FaultRates, seed: int) -> None:
        self._inner = inner
        self._rates = rates
        self._to_device = random.Random(2 * seed)
        self._from_device = random.Random(2 * seed + 1)
        self.damaged_bytes = 0

    @property
    def name(self) -> str:
        """The wrapped transport's."""
        return self._inner.name

    def read(self, limit: int, timeout_s: float) -> bytes:
        """What the wrapped one received, spoiled; may be empty though bytes came."""
        return self._spoil(self._inner.read(limit, timeout_s), self._from_device)

    def write(self, data: bytes) -> None:
        """Sends `data`, spoiled."""
        self._inner.write(self._spoil(data, self._to_device))

    def close(self) -> None:
        """Closes the wrapped one."""
        self._inner.close()

    def _spoil(self, data: bytes, chance: random.Random) -> bytes:
        out = bytearray()
        for byte in data:
            copies, value = 1, byte
            if chance.random() < self._rates.flip:
                value ^= 1 << chance.randrange(8)
            if chance.random() < self._rates.drop:
                copies = 0
            if chance.random() < self._rates.duplicate:
                copies += 1
            self.damaged_bytes += copies != 1 or value != byte
            out += bytes([value]) * copies
        return bytes(out)
