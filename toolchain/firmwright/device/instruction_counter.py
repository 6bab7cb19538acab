"""Exact instruction counts from a QEMU plugin (`plugin/count.c`).

The plugin, which the host's compiler compiles, counts the instructions executed during
the last call of a root function, and attributes each to the root's instruction that
caused it.
"""

import os
import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from firmwright.base.closeable import Closeable
from firmwright.base.errors import DeviceError
from firmwright.device.emulator_plugins import build_emulator_plugin, plugin_argument

_MAGIC = 0x32637766
_HEADER = struct.Struct("<6I")
_STEP = np.dtype([("cpu", "<u4"), ("function", "<u4"), ("executed", "<u8", (3,))])
_STEPS = 1 << 18
_EVENTS = ("count", "taken", "fetch_stalls", "data_stalls", "unaligned")
_COUNTERS = [(name, "<u8") for name in _EVENTS]
_CELL = np.dtype([("address", "<u4"), ("site", "<u4"), *_COUNTERS])
_CELLS = 1 << 19
TracedFunctions: TypeAlias = Sequence[tuple[int, int]]
"""Functions by their addresses and sizes."""


@dataclass(frozen=True, slots=True)
class InstructionCount:
    """Executions of an instruction, caused by the root's one at `site`, with events.

    `fetch_stalls` and `data_stalls` are cycles that the core waits for flash,
    `unaligned` the additional accesses of unaligned data.
    """

    address: int
    site: int
    count: int
    taken: int
    fetch_stalls: int = 0
    data_stalls: int = 0
    unaligned: int = 0


@dataclass(frozen=True, slots=True)
class FunctionEntry:
    """An entry of core `cpu` into `function`.

    `executed` are the instruction counts of both cores and of skipped calls.
    """

    cpu: int
    function: int
    executed: tuple[int, int, int]


class InstructionCounter(Closeable):
    """A file that the plugin fills with counts, read after the emulator has exited.

    `argument` is the value of QEMU's `-plugin` option. The root function is at
    `address`, `size_bytes` long. Entries into the `watched` functions are recorded for
    both cores. `flash` and `ram` hold the plugin's numbers of simulated memories. Calls
    of the functions at `skipped` are counted apart.
    """

    def __init__(
        self,
        plugin: Path,
        address: int,
        size_bytes: int,
        watched: TracedFunctions = (),
        flash: Sequence[int] = (),
        skipped: Sequence[int] = (),
        ram: Sequence[int] = (),
    ) -> None:
        handle, name = tempfile.mkstemp(prefix="fwcount", suffix=".bin")
        self._steps = _STEPS if watched else 0
        size = _HEADER.size + self._steps * _STEP.itemsize + _CELLS * _CELL.itemsize
        os.ftruncate(handle, size)  # a sparse file
        os.close(handle)
        self._path = Path(name)
        own = plugin_argument(plugin, self._path)
        words = [own, f"from={address}", f"bytes={size_bytes}"]
        words += [f"steps={self._steps}"] if watched else []
        words += [f"flash={':'.join(map(str, flash))}"] if flash else []
        words += [f"ram={':'.join(map(str, ram))}"] if ram else []
        words += [f"skip={address}" for address in skipped]
        words += [f"watch={start}:{size_bytes}" for start, size_bytes in watched]
        self.argument = ",".join(words)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)

    @property
    def started(self) -> bool:
        return self._header()[0] == _MAGIC

    def read(self) -> tuple[InstructionCount, ...]:
        """Return the nonzero counts of the root's last call, by first execution."""
        magic, count, entries, overflow, _, _ = self._header()
        if magic != _MAGIC or not entries:
            what = "the function to be counted was never called."
            raise DeviceError(what, where="QEMU's plugin")
        if overflow:
            what = "the code has too many instructions to count each."
            raise DeviceError(what, where="QEMU's plugin")
        start = _HEADER.size + self._steps * _STEP.itemsize
        rows = np.fromfile(self._path, _CELL, count, offset=start)
        return tuple(InstructionCount(*row) for row in rows[rows["count"] > 0].tolist())

    def steps(self) -> tuple[FunctionEntry, ...]:
        rows = np.fromfile(self._path, _STEP, self._header()[4], offset=_HEADER.size)
        columns = [rows[name].tolist() for name in ("cpu", "function", "executed")]
        entries = []
        for cpu, function, executed in zip(*columns, strict=True):
            entries.append(FunctionEntry(cpu, function, tuple(executed)))
        return tuple(entries)

    def _header(self) -> tuple[int, ...]:
        with self._path.open("rb") as file:
            return _HEADER.unpack(file.read(_HEADER.size))


def build_counter_plugin(folder: Path) -> Path:
    """Compile the plugin in `folder` and return its path, or raise ToolMissingError."""
    return build_emulator_plugin("count", folder)
