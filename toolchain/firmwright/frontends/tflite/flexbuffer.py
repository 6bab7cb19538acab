"""A reader of FlexBuffers maps, usual options of custom operators, in untrusted bytes.

Source of the format: the published description of FlexBuffers. A value is located
backwards from its end: the last byte is the root's width, the one before it its type.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from firmwright.ir.core import Attr

_FLOATS = {2: "<e", 4: "<f", 8: "<d"}
_ENTRIES_MAX = 256


class FlexType(IntEnum):
    """The value types that options use."""

    INT = 1
    UINT = 2
    FLOAT = 3
    STRING = 5
    MAP = 9
    BOOL = 26


_INDIRECT = {kind + 5: kind for kind in (FlexType.INT, FlexType.UINT, FlexType.FLOAT)}
"""The types of offsets to a number."""


class _BrokenError(Exception):
    """The bytes are not a map."""


def read_flexbuffer_map(data: bytes) -> dict[str, Attr] | None:
    """Return a map's numbers, flags and strings (no other kinds) by key, or None."""
    try:
        return _FlexbufferReader(data).root()
    except (_BrokenError, UnicodeDecodeError):
        return None


class _FlexbufferReader:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def root(self) -> dict[str, Attr]:
        if len(self.data) < 3:
            raise _BrokenError
        packed, width = self.data[-2], self.data[-1]
        if packed >> 2 != FlexType.MAP:
            raise _BrokenError
        place = self._target(len(self.data) - 2 - width, width)
        return self._map(place, 1 << (packed & 3))

    def _bytes(self, place: int, size: int) -> bytes:
        if place < 0 or place + size > len(self.data):
            raise _BrokenError
        return self.data[place : place + size]

    def _unsigned(self, place: int, width: int) -> int:
        if width not in (1, 2, 4, 8):
            raise _BrokenError
        return int.from_bytes(self._bytes(place, width), "little")

    def _target(self, place: int, width: int) -> int:
        return place - self._unsigned(place, width)

    def _map(self, place: int, width: int) -> dict[str, Attr]:
        """Read a map: size and keys precede `place`; values, then types start at it."""
        size = self._unsigned(place - width, width)
        key_width = self._unsigned(place - 2 * width, width)
        keys = self._target(place - 3 * width, width)
        if size > _ENTRIES_MAX:
            raise _BrokenError
        entries: dict[str, Attr] = {}
        for index in range(size):
            key = self._key(self._target(keys + index * key_width, key_width))
            packed = self._unsigned(place + size * width + index, 1)
            value = self._value(place + index * width, width, packed)
            if value is not None:
                entries[key] = value
        return entries

    def _key(self, place: int) -> str:
        end = self.data.find(b"\0", max(place, 0))
        return self._bytes(place, end - place).decode("utf-8") if end >= 0 else ""

    def _value(self, place: int, width: int, packed: int) -> Attr | None:
        kind, own_width = packed >> 2, 1 << (packed & 3)
        if kind in _INDIRECT:
            kind = _INDIRECT[kind]
            place = self._target(place, width)
            width = own_width
        match kind:
            case FlexType.INT:
                return int.from_bytes(self._bytes(place, width), "little", signed=True)
            case FlexType.UINT:
                return self._unsigned(place, width)
            case FlexType.FLOAT if width in _FLOATS:
                (number,) = struct.unpack(_FLOATS[width], self._bytes(place, width))
                return float(number)
            case FlexType.STRING:
                text = self._target(place, width)
                size = self._unsigned(text - own_width, own_width)
                return self._bytes(text, size).decode()
            case FlexType.BOOL:
                return bool(self._unsigned(place, width))
        return None
