"""Firmware behind a bad line, in virtual time: the runtime's own C, and seeded faults.

In: the library of `build`, a `Line` and a seed. Out: a Transport whose clock moves only
as far as a session waits, so that hours of repetitions take milliseconds and every
session repeats exactly. Each byte takes its time on the line; a firmware that sends or
works hears nothing but what its receiver keeps.
"""

from __future__ import annotations

import heapq
import random
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cffi

from firmwright.base.errors import DeviceError

ROOT = Path(__file__).parents[2]
BAUD = 115200
BITS_A_BYTE = 10
_BAUD_TOLERANCE = 0.03
_READY = -1
"""In place of a byte: the firmware has done its work, and hears again."""
_DECLARATIONS = """
extern uint8_t sim_out[70000]; extern uint32_t sim_out_size; extern uint32_t sim_baud;
extern int32_t sim_has_baud; extern uint32_t sim_receive_bytes;
extern uint32_t sim_marks;
void sim_start(void);
int sim_take(uint8_t byte);
"""


def build(folder: Path, *defines: str) -> Path:
    """The tiny firmware as a library that `SimulatedLine` drives."""
    compiler = shutil.which("gcc") or shutil.which("clang") or "cc"
    library = folder / ("_".join(["sim", *defines]).replace("=", "") + ".so")
    runtime = [
        file for file in (ROOT / "runtime_c").glob("fwr_*.c") if file.stem != "fwr_main"
    ]
    tests = [
        ROOT / "tests/runtime" / name for name in ("simulated_port.c", "tiny_app.c")
    ]
    flags = ["-std=c99", "-O1", "-fPIC", "-shared", f"-I{ROOT / 'runtime_c'}"]
    options = [f"-D{name}" for name in ("FWR_ASSERTIONS=1", *defines)]
    files = [str(file) for file in (*sorted(runtime), *tests)]
    subprocess.run([compiler, *flags, *options, *files, "-o", str(library)], check=True)
    return library


@dataclass(frozen=True, slots=True)
class Line:
    """What happens to bytes: chances for each, in each direction, and single events.

    `swap` exchanges a byte with the next one, `delay` holds all that follows back for
    up to `delay_s`. `kept_bytes` is what the firmware's receiver keeps while it is
    busy: 1 for a UART without FIFO. `says_bytes` is what it says of that. After so many
    bytes to the device `reset_after` restarts it and `gone_after` ends the line; it is
    opened again at once if `comes_back`. `device_baud_error`: the device's other rates
    than the first are wrong by it.
    """

    flip: float = 0.0
    drop: float = 0.0
    duplicate: float = 0.0
    swap: float = 0.0
    delay: float = 0.0
    delay_s: float = 0.0
    kept_bytes: int = 1 << 20
    says_bytes: int = 0
    work_s: float = 0.001
    reset_after: int = 0
    gone_after: int = 0
    comes_back: bool = False
    has_baud: bool = False
    device_baud_error: float = 0.0


class SimulatedLine:
    """The transport, the line, and the firmware behind it."""

    name = "the simulated line"

    def __init__(self, library: Path, line: Line, seed: int) -> None:
        self.now = 0.0
        self.faults = 0
        self.restarts = 0
        self.host_baud = BAUD
        self._line = line
        self._chance = random.Random(seed)
        self._ffi = cffi.FFI()
        self._ffi.cdef(_DECLARATIONS)
        self._library = library
        self._c: Any = None
        self._events: list[tuple[float, int, bool, int, float]] = []
        self._count = 0
        self._free = {
            True: 0.0,
            False: 0.0,
        }  # when the line takes the next byte, by direction
        self._held: dict[bool, int | None] = {True: None, False: None}
        self._inbox = bytearray()
        self._busy_until = 0.0
        self._device_hears_at = float(BAUD)
        self._kept: list[int] = []
        self._to_device = 0
        self._gone = False
        self._start()

    # ---- Transport -------------------------------------------------------------------

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def read(self, limit: int, timeout_s: float) -> bytes:
        self._require_line()
        until = self.now + max(timeout_s, 1e-6)  # or nothing would ever end
        while not self._inbox:
            if not self._events or self._events[0][0] > until:
                self.now = until
                return b""
            self._next_event()
            self._require_line()
        data = bytes(self._inbox[:limit])
        del self._inbox[:limit]
        return data

    def write(self, data: bytes) -> None:
        self._require_line()
        for byte in data:
            self._send(byte, to_device=True, baud=self.host_baud)
        until = max(self.now, self._free[True])  # as a port does that is flushed
        while self._events and self._events[0][0] <= until:
            self._next_event()
        self.now = until

    @property
    def marks(self) -> int:
        """Runs that the port was told of; more than 2**31 while one goes on."""
        return int(self._c.sim_marks)

    def set_baud(self, baud: int) -> None:
        self.host_baud = baud or BAUD

    def close(self) -> None:
        if not (self._gone and self._line.comes_back):
            self.end()

    def end(self) -> None:
        """Unloads the firmware: another line with the same library starts it anew."""
        if self._c is not None:
            self._ffi.dlclose(self._c)
            self._c = None

    def reopen(self) -> SimulatedLine:
        """The port again, after it was gone."""
        if self._gone and not self._line.comes_back:
            raise DeviceError("the port cannot be opened.", where=self.name)
        self._gone = False
        self._inbox.clear()
        return self

    # ---- The line --------------------------------------------------------------------

    def _require_line(self) -> None:
        if self._gone:
            raise DeviceError("the port failed: gone.", where=self.name)

    def _device_baud(self) -> float:
        raised = int(self._c.sim_baud)
        return raised * (1 + self._line.device_baud_error) if raised else BAUD

    def _send(self, byte: int, *, to_device: bool, baud: float) -> None:
        line, chance = self._line, self._chance
        copies = 1
        if chance.random() < line.flip:
            byte ^= 1 << chance.randrange(8)
            self.faults += 1
        if chance.random() < line.drop:
            copies = 0
            self.faults += 1
        if chance.random() < line.duplicate:
            copies += 1
            self.faults += 1
        if chance.random() < line.delay:
            self._free[to_device] += chance.random() * line.delay_s
            self.faults += 1
        for _ in range(copies):
            self._put(byte, to_device, baud)

    def _put(self, byte: int, to_device: bool, baud: float) -> None:
        held = self._held[to_device]
        if held is None and self._chance.random() < self._line.swap:
            self._held[to_device] = byte
            self.faults += 1
            return
        self._held[to_device] = None
        for value in (byte,) if held is None else (byte, held):
            start = max(self.now, self._busy_until if not to_device else 0.0)
            at = max(start, self._free[to_device]) + BITS_A_BYTE / baud
            self._free[to_device] = at
            self._count += 1
            heapq.heappush(self._events, (at, self._count, to_device, value, baud))

    def _next_event(self) -> None:
        at, _, to_device, byte, baud = heapq.heappop(self._events)
        self.now = max(self.now, at)
        if byte == _READY:
            self._device_hears_at = self._device_baud()
            self._feed_kept()
            return
        ratio = (self._device_hears_at if to_device else self.host_baud) / baud
        if abs(ratio - 1) <= _BAUD_TOLERANCE:
            self._arrive(byte, to_device)
            return
        for value in self._garbled(ratio):
            self._arrive(value, to_device)

    def _garbled(self, ratio: float) -> bytes:
        """Return the random bytes that a receiver reads for one at another rate."""
        whole, rest = divmod(ratio, 1)
        return self._chance.randbytes(int(whole) + (self._chance.random() < rest))

    def _arrive(self, byte: int, to_device: bool) -> None:
        if not to_device:
            self._inbox.append(byte)
            return
        self._to_device += 1
        if self._to_device == self._line.reset_after:
            self._start()
            return
        if self._to_device == self._line.gone_after:
            self._gone = True
            self._events.clear()
        if self.now < self._busy_until:
            if len(self._kept) < self._line.kept_bytes:
                self._kept.append(byte)
            return
        self._kept.append(byte)
        self._feed_kept()

    def _feed_kept(self) -> None:
        while self._kept and self.now >= self._busy_until:
            self._feed(self._kept.pop(0))

    # ---- The firmware ----------------------------------------------------------------

    def _start(self) -> None:
        if self._c is not None:
            self._ffi.dlclose(self._c)
            self.restarts += 1
        self._c = self._ffi.dlopen(str(self._library))
        self._c.sim_has_baud = self._line.has_baud
        self._c.sim_receive_bytes = self._line.says_bytes
        self._kept.clear()
        self._device_hears_at = float(BAUD)
        self._c.sim_start()
        self._answer(BAUD)

    def _feed(self, byte: int) -> None:
        baud = self._device_baud()
        goes_on = self._c.sim_take(byte)
        self._answer(baud)
        if not goes_on:
            self._start()

    def _answer(self, baud: float) -> None:
        """Queue what the firmware sent.

        Until that is out, and its work done, the firmware hears nothing.
        """
        size = int(self._c.sim_out_size)
        if not size:
            return
        data = bytes(self._ffi.buffer(self._c.sim_out, size))
        self._c.sim_out_size = 0
        self._busy_until = max(self._busy_until, self.now) + self._line.work_s
        for byte in data:
            self._send(byte, to_device=False, baud=baud)
        self._busy_until += len(data) * BITS_A_BYTE / baud
        self._count += 1
        heapq.heappush(self._events, (self._busy_until, self._count, True, _READY, 0.0))
