"""QEMU as a transport; the board's UART is the emulator's stdin and stdout.

A link in memory is accessed over the emulator's GDB stub. One instruction takes one
nanosecond of virtual time (`-icount shift=0`), so counts are exact, unless the emulator
keeps pace with the host (decision 0002).
"""

import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from firmwright.artifacts import PreloadedMemory
from firmwright.base.child_process import Word, find_program
from firmwright.base.errors import DeviceError, ToolMissingError
from firmwright.boards import Board
from firmwright.device.gdb_client import GdbClient
from firmwright.device.process_transport import ProcessTransport
from firmwright.device.rtt_transport import RttTransport

PACKAGES = {
    "qemu-system-arm": "qemu-system-arm",
    "qemu-system-riscv32": "qemu-system-misc",
}
_START_S: Final = 20.0
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
    waits; an image is then optional. Without `has_uart`, the link uses memory. With
    `pace`, an instruction takes 2^pace nanoseconds, and virtual time is not ahead of
    the host's. `terminal` is an inherited descriptor of a terminal for the link,
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
        if self.gdb:
            path = self.gdb.replace(",", ",,")
            stub = f"socket,path={path},server=on,wait=off,id=gdb"
            words += ["-S", "-chardev", stub, "-gdb", "chardev:gdb"]
        return words

    def _link(self) -> list[Word]:
        if self.terminal is None:
            return ["-chardev", "stdio,id=link,signal=off"]
        descriptor = f"fd={self.terminal},set=1"
        return ["-add-fd", descriptor, "-chardev", "serial,id=link,path=/dev/fdset/1"]


def _loader(load: PreloadedMemory) -> str:
    """Return the argument of QEMU's generic loader; a comma in a value is doubled."""
    file = str(load.file.absolute()).replace(",", ",,")
    return f"loader,file={file},addr={load.address:#x},force-raw=on"


def start_qemu(command: QemuCommand) -> ProcessTransport:
    if find_program(command.program) is None:
        package = PACKAGES.get(command.program, command.program)
        what = f"{command.program} is not installed."
        hint = f"apt install {package}."
        raise ToolMissingError(what, where=command.machine, hint=hint)
    arguments = command.arguments()
    by_hand = " ".join(map(str, arguments))
    return ProcessTransport(
        arguments,
        name=f"{command.program} -machine {command.machine}",
        hint="start the session again; if it happens every time, "
        f"try the command by hand: {by_hand}",
    )


class QemuRttTransport(RttTransport):
    """An RTT transport that owns the emulator's process and its debug socket."""

    def __init__(self, process: ProcessTransport, folder: str, board: Board) -> None:
        self._process = process
        self._folder = folder
        try:
            path = Path(folder) / "gdb"
            wait_for_gdb_stub(path)
            stub = GdbClient(f"unix:{path}")
            super().__init__(stub, board.ram.start, board.ram.size_bytes, process.name)
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._end()

    def _end(self) -> None:
        self._process.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def open_qemu_rtt(command: QemuCommand, board: Board) -> QemuRttTransport:
    folder = tempfile.mkdtemp(prefix="firmwright-")
    gdb = str(Path(folder) / "gdb")
    process = start_qemu(replace(command, gdb=gdb, has_uart=False))
    return QemuRttTransport(process, folder, board)


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
