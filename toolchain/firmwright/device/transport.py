"""The byte-stream interface below the link, and a wrapper that injects faults."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol, TypeGuard


class Transport(Protocol):
    """A byte stream to and from one firmware, in which bytes may be lost or damaged."""

    @property
    def name(self) -> str:
        """Return the name used in errors: a port, a command or a board."""
        ...

    def read(self, limit: int, timeout_s: float) -> bytes:
        """Wait for data and return up to `limit` bytes, or b"" after the timeout.

        Raise DeviceError if the other side has closed.
        """
        ...

    def write(self, data: bytes) -> None:
        """Send all of `data`; raise DeviceError if the other side has closed."""
        ...

    def close(self) -> None:
        """Close; a second call has no effect."""


class BaudTransport(Transport, Protocol):
    """A transport with an adjustable baud rate."""

    def set_baud(self, baud: int) -> None:
        """Change the rate after all written bytes have left; 0 restores the initial rate."""
        ...


def has_baud(transport: Transport) -> TypeGuard[BaudTransport]:
    return hasattr(transport, "set_baud")


@dataclass(frozen=True, slots=True)
class FaultRates:
    """The probabilities, per byte and direction, of a bit flip, a loss and a duplicate."""

    flip: float = 0.0
    drop: float = 0.0
    duplicate: float = 0.0


class FaultyTransport:
    """A wrapper that damages bytes; the same seed and bytes give the same damage."""

    def __init__(self, inner: Transport, rates: FaultRates, seed: int) -> None:
        self._inner = inner
        self._rates = rates
        self._to_device = random.Random(2 * seed)
        self._from_device = random.Random(2 * seed + 1)
        self.damaged_bytes = 0

    @property
    def name(self) -> str:
        return self._inner.name

    def read(self, limit: int, timeout_s: float) -> bytes:
        """Return the received bytes with damage; the result may be empty although bytes arrived."""
        return self._spoil(self._inner.read(limit, timeout_s), self._from_device)

    def write(self, data: bytes) -> None:
        self._inner.write(self._spoil(data, self._to_device))

    def close(self) -> None:
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
