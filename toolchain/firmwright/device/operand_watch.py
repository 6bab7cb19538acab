"""Accesses of operators to memory other than their operands, from a QEMU plugin.

The plugin (`plugin/operands.c`) has the layout of the file that both use.
"""

import os
import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from firmwright.base.closeable import Closeable
from firmwright.base.errors import DeviceError
from firmwright.device.emulator_plugins import plugin_argument

_MAGIC = 0x31707766
_HEADER = struct.Struct("<8I")
_PAIR = struct.Struct("<2I")
_FAULT = struct.Struct("<5I")
_FAULT_ROOM = 4096


@dataclass(frozen=True, slots=True, order=True)
class MemoryRange:
    """Bytes of the target's memory."""

    start: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class WrongAccess:
    """An access by the instruction at an address, while an operator ran."""

    operator: int
    instruction: int
    address: int
    size_bytes: int
    is_store: bool


class OperandWatch(Closeable):
    """A file with the operands of all operators, to which the plugin adds accesses.

    `argument` is the value of QEMU's `-plugin` option. The firmware stores a byte at
    `marks` plus an operator's index when the operator starts, and at `marks` plus their
    number when it has ended. In between, accesses to the `areas`, which are disjoint,
    must be to the operator's `operands`.
    """

    def __init__(
        self,
        plugin: Path,
        marks: int,
        areas: Sequence[MemoryRange],
        operands: Sequence[Sequence[MemoryRange]],
    ) -> None:
        ranges = [*sorted(areas), *chain.from_iterable(operands)]
        counts = (len(operands), len(areas), len(ranges) - len(areas), _FAULT_ROOM)
        data = bytearray(_HEADER.pack(0, marks, *counts, 0, 0))
        first = 0
        for own in operands:
            data += _PAIR.pack(first, len(own))
            first += len(own)
        for item in ranges:
            data += _PAIR.pack(item.start, item.size_bytes)
        self._faults = len(data)
        handle, name = tempfile.mkstemp(prefix="fwoperands", suffix=".bin")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.truncate(len(data) + _FAULT_ROOM * _FAULT.size)
        self._path = Path(name)
        self.argument = plugin_argument(plugin, self._path)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)

    def read(self) -> tuple[WrongAccess, ...]:
        """Return the first wrong access of each instruction in each operator.

        Raises:
            DeviceError: QEMU did not load the plugin, or there are too many accesses.
        """
        data = self._path.read_bytes()
        magic, *_, count, overflow = _HEADER.unpack_from(data)
        where = "QEMU's plugin"
        if magic != _MAGIC:
            raise DeviceError("the emulator did not load the plugin.", where=where)
        if overflow:
            what = f"more than {_FAULT_ROOM} instructions access wrong memory."
            raise DeviceError(what, where=where)
        end = self._faults + count * _FAULT.size
        found: list[WrongAccess] = []
        for row in _FAULT.iter_unpack(data[self._faults : end]):
            operator, instruction, address, size_bytes, is_store = row
            found.append(
                WrongAccess(
                    operator, instruction, address, size_bytes, is_store=bool(is_store)
                )
            )
        return tuple(found)
