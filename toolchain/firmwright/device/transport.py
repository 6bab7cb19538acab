"""The byte-stream interface below the link."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeGuard

Clock = Callable[[], float]


class Transport(Protocol):
    """A byte stream to and from one firmware, in which bytes may be lost or damaged."""

    @property
    def name(self) -> str:
        """Return the name used in errors: a port, a command or a board."""

    def read(self, limit: int, timeout_s: float) -> bytes:
        """Return up to `limit` bytes, b"" after the timeout; DeviceError if closed."""

    def write(self, data: bytes) -> None:
        """Send all of `data`; raise DeviceError if the other side has closed."""

    def close(self) -> None:
        """Close; a second call has no effect."""


class BaudTransport(Transport, Protocol):
    """A transport with an adjustable baud rate."""

    def set_baud(self, baud: int) -> None:
        """Change the rate after all written bytes have left; 0 restores the first."""


class MemoryTransport(Transport, Protocol):
    """A transport that also reaches the memory of a waiting firmware."""

    def write_memory(self, address: int, data: bytes) -> None:
        """Write `data` from `address` on; raise DeviceError if that fails."""

    def read_memory(self, address: int, size_bytes: int) -> bytes:
        """Return the bytes from `address` on; raise DeviceError if that fails."""


class TimedTransport(Transport, Protocol):
    """A transport with its own time, such as that of an emulator."""

    def time_s(self) -> float:
        """Return the seconds that count for time limits."""


def clock_of(transport: Transport) -> Clock:
    """Return the clock of time limits, the real time unless the transport has one."""
    return transport.time_s if has_time(transport) else time.monotonic


def has_time(transport: Transport) -> TypeGuard[TimedTransport]:
    return hasattr(transport, "time_s")


def has_memory(transport: Transport) -> TypeGuard[MemoryTransport]:
    return hasattr(transport, "write_memory")


def has_baud(transport: Transport) -> TypeGuard[BaudTransport]:
    return hasattr(transport, "set_baud")
