"""Bits flipped in a firmware that runs in QEMU, through the emulator's GDB stub.

A run is a call of the glue's function `run`, made by setting the registers while the
firmware stands at `main`. The SysTick timer interrupts it at a random time, of which
the resolution is 40 instructions. There one bit is flipped, also of the registers that
the interrupt has stacked; then the run goes on until it returns, faults or takes too
long.
"""

import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias

import numpy as np

from firmwright.artifacts import Image
from firmwright.base.closeable import Closeable
from firmwright.base.errors import DeviceError
from firmwright.device.gdb_client import GdbClient
from firmwright.device.qemu_process import QemuCommand, QemuProcess, start_qemu

_SP, _LR, _PC, _XPSR = 13, 14, 15, 25
_THUMB: Final = 1 << 24
_STOP_S: Final = 20.0
_TIME_LIMIT_S: Final = 3.0
_STACKED: Final = {0: 0, 1: 1, 2: 2, 3: 3, 12: 4, _LR: 5, _PC: 6}
"""The places in the frame of an exception, in words, of the registers there."""
_FRAME_BYTES: Final = 32
REGISTERS: Final = (*range(13), _LR, _PC)
_SYST_CSR, _SYST_CVR = 0xE000E010, 0xE000E018
_SYSTICK: Final = 15
_TICKS_MAX: Final = 0xFFFFFF
_CODE: Final = 0x3FF000
"""The address of two pieces of code in flash that the image does not use.

The stub cannot write registers of devices.
"""
_BEGIN: Final = struct.pack("<4H", 0x6041, 0x6082, 0x6003, 0x4720)
"""`str r1, [r0, #4]`, `str r2, [r0, #8]`, `str r3, [r0]`, `bx r4`."""
_END: Final = struct.pack("<2H", 0x6003, 0x4770)
"""`str r3, [r0]`, `bx lr`."""


class Effect(StrEnum):
    """What a flipped bit led to."""

    MASKED = "masked"
    DETECTED = "detected"
    SILENT = "silent"
    FAULT = "fault"
    TIMEOUT = "time-out"


class Stub(GdbClient):
    """A GDB client that also sets breakpoints and waits for a stop."""

    def set_breakpoint(self, address: int) -> None:
        self._expect_ok(b"Z0,%x,2" % (address & ~1), "set a breakpoint")

    def set_register(self, number: int, value: int) -> None:
        self._set_register(number, value & 0xFFFFFFFF)

    def word(self, address: int) -> int:
        return int.from_bytes(self.read(address, 4), "little")

    def set_word(self, address: int, value: int) -> None:
        self.write(address, value.to_bytes(4, "little"))

    def wait(self, timeout_s: float) -> bool:
        """Return whether the target that `go` resumed stops in time."""
        self._socket.settimeout(timeout_s)
        try:
            self._expect_stop(self._receive(), "stop")
        except DeviceError:
            return False
        finally:
            self._socket.settimeout(_STOP_S)
        return True


@dataclass(frozen=True, slots=True)
class Interface:
    """The addresses of inputs, each with its bytes, and of outputs with their sizes."""

    inputs: Mapping[int, bytes]
    outputs: Mapping[int, int]


Flip: TypeAlias = "Callable[[CorruptedFirmware], None]"
"""Flips a bit in the interrupted firmware."""


class CorruptedFirmware(Closeable):
    """A firmware in QEMU that stands at `main` between runs."""

    def __init__(self, image: Image, machine: str, interface: Interface) -> None:
        addresses = {item.name: item.address for item in image.sizes.symbols}
        self._functions = [s for s in image.sizes.symbols if s.kind == "text"]
        self._run, self._main = addresses["run"], addresses["main"]
        self._fault = addresses["fault_handler"]
        self._command = QemuCommand(machine, image.elf)
        self._interface = interface
        self._process: QemuProcess | None = None
        self.restarts = 0
        self._restart()
        self._call(_TICKS_MAX)
        self.stub.wait(_STOP_S)
        self.ticks = _TICKS_MAX - self.stub.word(_SYST_CVR)
        self.expected = self._outputs()

    def close(self) -> None:
        if self._process is not None:
            self._process.close()

    def inject(self, rng: np.random.Generator, flip: Flip) -> Effect:
        """Run with a flip at a random time; return the effect."""
        effect = self._attempt(lambda: self._interrupted(rng, flip))
        if effect in (Effect.FAULT, Effect.TIMEOUT):
            self._restart()
        return effect

    def run(self) -> Effect:
        """Run without a flip."""

        def uninterrupted() -> Effect:
            self._call(0)
            return self._effect(self.stub.wait(_TIME_LIMIT_S))

        return self._attempt(uninterrupted)

    def _attempt(self, run: Callable[[], Effect]) -> Effect:
        """Return the effect; QEMU ends if a fault occurs in the handler of a fault."""
        try:
            return run()
        except DeviceError:
            return Effect.FAULT

    def _interrupted(self, rng: np.random.Generator, flip: Flip) -> Effect:
        self._call(int(rng.integers(1, self.ticks)))
        self.stub.wait(_STOP_S)
        flip(self)
        self._leave_handler()
        has_stopped = self.stub.wait(_TIME_LIMIT_S)
        while has_stopped and self.stub.register(_PC) == self._handler:
            # The timer had expired again before it was stopped.
            self._leave_handler()
            has_stopped = self.stub.wait(_TIME_LIMIT_S)
        return self._effect(has_stopped)

    def restore(self) -> None:
        """Start again unless a run without a flip has its right result."""
        if self.run() is not Effect.MASKED:
            self._restart()

    @property
    def used_stack(self) -> range:
        """The stack of the interrupted run, without the frame of the interrupt."""
        return range(self.stub.register(_SP) + _FRAME_BYTES, self.stack)

    @property
    def function(self) -> str:
        """The name of the interrupted function."""
        frame = self.stub.register(_SP)
        counter = self.stub.word(frame + 4 * _STACKED[_PC])
        for item in self._functions:
            if 0 <= counter - (item.address & ~1) < item.size_bytes:
                return item.name
        return ""

    def flip_register(self, number: int, bit: int) -> None:
        if number in _STACKED:
            address = self.stub.register(_SP) + 4 * _STACKED[number]
            self.stub.set_word(address, self.stub.word(address) ^ 1 << bit)
        else:
            self.stub.set_register(number, self.stub.register(number) ^ 1 << bit)

    def flip_memory(self, address: int, bit: int) -> None:
        (byte,) = self.stub.read(address, 1)
        self.stub.write(address, bytes([byte ^ 1 << bit]))

    def _effect(self, has_stopped: bool) -> Effect:
        if not has_stopped:
            return Effect.TIMEOUT
        if self.stub.register(_PC) != self._main & ~1:
            return Effect.FAULT
        if self.stub.register(0) != 0:
            return Effect.DETECTED
        return Effect.MASKED if self._outputs() == self.expected else Effect.SILENT

    def _outputs(self) -> bytes:
        parts = self._interface.outputs.items()
        return b"".join(self.stub.read_all(at, size) for at, size in parts)

    def _call(self, ticks: int) -> None:
        """Begin a run that is interrupted after so many ticks; never if they are 0."""
        for address, data in self._interface.inputs.items():
            self.stub.write_all(address, data)
        timer = {0: _SYST_CSR, 1: ticks, 2: 0, 3: 7 if ticks else 0, 4: self._run | 1}
        ends = {_XPSR: _THUMB, _SP: self.stack, _LR: self._main | 1, _PC: _CODE}
        self._set_registers(timer | ends)
        self.stub.go()

    def _leave_handler(self) -> None:
        """Stop the timer instead of what its handler does, and return from it."""
        # r0 to r3 have been stacked.
        self._set_registers({0: _SYST_CSR, 3: 0, _PC: _CODE + len(_BEGIN)})
        self.stub.go()

    def _set_registers(self, values: Mapping[int, int]) -> None:
        for number, value in values.items():
            self.stub.set_register(number, value)

    def _restart(self) -> None:
        self.close()
        self.restarts += 1
        ours, theirs = socket.socketpair()
        with theirs:
            command = replace(self._command, stub=theirs.fileno())
            self._process = start_qemu(command)
        self.stub = Stub(self._process.name, line=ours, timeout_s=_STOP_S)
        self.stub.set_breakpoint(self._main)
        self.stub.set_breakpoint(self._fault)
        self._handler = self.stub.word(4 * _SYSTICK) & ~1
        self.stub.set_breakpoint(self._handler)
        self.stub.go()
        self.stub.wait(_STOP_S)
        self.stack = self.stub.register(_SP)
        self.stub.write(_CODE, _BEGIN + _END)
