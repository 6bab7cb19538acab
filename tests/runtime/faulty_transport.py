"""A transport that damages the bytes of another one."""

from __future__ import annotations

import random
from dataclasses import dataclass

from firmwright.device.transport import Transport


@dataclass(frozen=True, slots=True)
class FaultRates:
    """The probabilities, per byte and direction, of bit flip, loss and duplicate."""

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
        """Return received bytes with damage, or none although bytes arrived."""
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
