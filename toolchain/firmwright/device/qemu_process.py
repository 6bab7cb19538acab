"""QEMU as a transport; the board's UART is the emulator's stdin and stdout.

Memory is accessed over the emulator's GDB stub: by a link in memory, and for large
inputs and outputs, which would take 50 µs per byte over the UART. One instruction takes
one nanosecond of virtual time (`-icount shift=0`), so counts are exact, unless the
emulator keeps pace with the host (decision 0002).
"""

import contextlib
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from firmwright.artifacts import PreloadedMemory
from firmwright.base.child_process import Word, find_program
from firmwright.base.errors import DeviceError, ToolMissingError
from firmwright.base.platform_compat import process_cpu_s
from firmwright.boards import Board
from firmwright.device.emulator_clock import SLOWEST, EmulatorClock
from firmwright.device.gdb_client import GdbClient
from firmwright.device.process_transport import ProcessTransport
from firmwright.device.rtt_transport import RttTransport

PACKAGES = {
    "qemu-system-arm": "qemu-system-arm",
    "qemu-system-riscv32": "qemu-system-misc",
    "qemu-system-xtensa": "qemu-system-misc",
}
_START_S: Final = 20.0
_STUB_S: Final = SLOWEST * _START_S
"""The time limit of a stub's answer; an emulator that ends closes the connection."""
_SOCKETS: Final = Path("/proc/net/unix")
_LISTENING: Final = "00010000"
"""The flags of a socket that listens, __SO_ACCEPTCON, in that file."""
PACE_MAX: Final = 10
"""The limit of QEMU's `-icount shift`."""


@dataclass(frozen=True, slots=True)
class QemuCommand:
    """The emulator, machine and image.

    `extra` holds further arguments such as `-cpu` or `-bios`. `plugin` is the argument
    of `-plugin` (see instruction_counter.py). `loads` are copied into memory before the
    firmware starts. `gdb` is the path of a debugger's socket, for which the processor
    waits; an image is then optional. `stub` is instead an inherited descriptor of a
    socket that is connected to the debugger. Without `has_uart`, the link uses memory.
    With `pace`, an instruction takes 2^pace nanoseconds, and virtual time is not ahead
    of the host's. `terminal` is an inherited descriptor of a terminal for the link,
    otherwise standard input and output. A paced emulator writes warnings to its
    standard output when the host is too slow.
    """

    machine: str
    kernel: Path | None
    program: str = "qemu-system-arm"
    extra: tuple[str, ...] = ()
    plugin: str = ""
    loads: tuple[PreloadedMemory, ...] = ()
    gdb: str = ""
    stub: int | None = None
    has_uart: bool = True
    pace: int = 0
    terminal: int | None = None

    def arguments(self) -> list[Word]:
        words: list[Word] = [self.program, "-machine", self.machine, *self.extra]
        if self.kernel is not None:
            words += ["-kernel", self.kernel]
        for load in self.loads:
            words += ["-device", _loader(load)]
        align = ",align=on" if self.pace else ""
        words += ["-icount", f"shift={self.pace}{align}"]
        if self.plugin:
            words += ["-plugin", self.plugin]
        words += ["-display", "none", "-monitor", "none", "-nodefaults"]
        words += self._link()
        if self.has_uart:
            words += ["-serial", "chardev:link"]
        if self.gdb or self.stub is not None:
            words += ["-S", "-chardev", self._debugger(), "-gdb", "chardev:gdb"]
        return words

    def _debugger(self) -> str:
        if self.stub is not None:
            return f"socket,fd={self.stub},id=gdb"
        path = self.gdb.replace(",", ",,")
        return f"socket,path={path},server=on,wait=off,id=gdb"

    def _link(self) -> list[Word]:
        if self.terminal is None:
            return ["-chardev", "stdio,id=link,signal=off"]
        descriptor = f"fd={self.terminal},set=1"
        return ["-add-fd", descriptor, "-chardev", "serial,id=link,path=/dev/fdset/1"]


def _loader(load: PreloadedMemory) -> str:
    """Return the argument of QEMU's generic loader; a comma in a value is doubled."""
    file = str(load.file.absolute()).replace(",", ",,")
    return f"loader,file={file},addr={load.address:#x},force-raw=on"


class QemuProcess(ProcessTransport):
    """An emulator's process; time limits count the time that it gets of a processor."""

    def __init__(self, command: QemuCommand) -> None:
        by_hand = " ".join(map(str, replace(command, stub=None).arguments()))
        super().__init__(
            command.arguments(),
            name=f"{command.program} -machine {command.machine}",
            hint="start the session again; if it happens every time, "
            f"try the command by hand: {by_hand}",
            pass_fds=() if command.stub is None else (command.stub,),
        )
        self._clock = EmulatorClock(partial(process_cpu_s, self.pid))

    def time_s(self) -> float:
        return self._clock()


def start_qemu(command: QemuCommand) -> QemuProcess:
    if find_program(command.program) is None:
        package = PACKAGES.get(command.program, command.program)
        what = f"{command.program} is not installed."
        hint = f"apt install {package}."
        raise ToolMissingError(what, where=command.machine, hint=hint)
    return QemuProcess(command)


class QemuMemoryTransport:
    """An emulator whose UART is the byte stream, and whose GDB stub reaches memory.

    The stub halts the emulator for each access, so virtual time and counts do not
    change.
    """

    def __init__(self, command: QemuCommand) -> None:
        self._process, self._stub = _start_with_stub(command)
        self.name = self._process.name
        self._stub.go()

    def time_s(self) -> float:
        return self._process.time_s()

    def read(self, limit: int, timeout_s: float) -> bytes:
        return self._process.read(limit, timeout_s)

    def write(self, data: bytes) -> None:
        self._process.write(data)

    def write_memory(self, address: int, data: bytes) -> None:
        with self._halted():
            self._stub.write_all(address, data)

    def read_memory(self, address: int, size_bytes: int) -> bytes:
        with self._halted():
            return self._stub.read_all(address, size_bytes)

    def close(self) -> None:
        self._process.close()
        self._stub.close()

    @contextlib.contextmanager
    def _halted(self) -> Iterator[None]:
        self._stub.halt()
        try:
            yield
        finally:
            self._stub.go()


class QemuRttTransport(RttTransport):
    """An RTT transport that owns the emulator's process."""

    def __init__(self, command: QemuCommand, board: Board) -> None:
        self._process, stub = _start_with_stub(replace(command, has_uart=False))
        try:
            super().__init__(
                stub, board.ram.start, board.ram.size_bytes, self._process.name
            )
        except BaseException:
            self._process.close()
            raise

    def time_s(self) -> float:
        return self._process.time_s()

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._process.close()


def _start_with_stub(command: QemuCommand) -> tuple[QemuProcess, GdbClient]:
    """Start a halted emulator, with a connection to its GDB stub.

    The connection is a pair of sockets, one of which the emulator inherits: no other
    program can connect.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            process = start_qemu(replace(command, stub=theirs.fileno()))
    except BaseException:
        ours.close()
        raise
    try:
        return process, GdbClient(process.name, line=ours, timeout_s=_STUB_S)
    except BaseException:
        process.close()
        raise


def wait_for_gdb_stub(path: Path) -> None:
    """Return when the emulator that was told to listen at `path` does so."""
    deadline = time.monotonic() + _START_S
    while not _is_listening(path):
        if time.monotonic() > deadline:
            what = "the emulator did not open its GDB stub."
            hint = "check that firmwright run works on this board."
            raise DeviceError(what, where=str(path), hint=hint)
        time.sleep(0.01)


def _is_listening(path: Path) -> bool:
    """Return whether a socket accepts connections, without connecting to it.

    The path exists a moment earlier, when a connection is still refused. Linux lists
    the sockets that listen; elsewhere the path has to suffice.
    """
    if not _SOCKETS.exists():
        return path.exists()
    for line in _SOCKETS.read_text(errors="replace").splitlines():
        fields = line.split(maxsplit=7)
        if fields[-1] == str(path) and fields[3] == _LISTENING:
            return True
    return False
