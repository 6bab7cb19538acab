"""QEMU as a transport: the emulated board's UART is the emulator's stdin and stdout.

In: a frozen `QemuCommand`. Out: a Transport that ends the emulator with it. A pipe instead of a
TCP port leaves nothing to choose, nothing to collide with, and shows a dead emulator at once.
With `-icount shift=0` one instruction is one nanosecond of virtual time: counts are exact and the
same on every machine.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from firmwright.artifacts import PreloadedMemory
from firmwright.base.errors import ToolMissingError
from firmwright.device.process_transport import ProcessTransport

PACKAGES = {"qemu-system-arm": "qemu-system-arm", "qemu-system-riscv32": "qemu-system-misc"}


@dataclass(frozen=True, slots=True)
class QemuCommand:
    """Which emulator, machine and image; `extra` are further arguments (`-cpu`, `-bios`, ...).

    `plugin` is the argument of `-plugin`, where there is one (see counting.py).
    `loads` are files that the emulator puts into memory before the firmware starts. `gdb` is the
    path of a socket on which a debugger is waited for, the processor halted; the machine may
    then start without an image. Without `has_uart` the link goes another way, through memory.
    """

    machine: str
    kernel: Path | None
    program: str = "qemu-system-arm"
    extra: tuple[str, ...] = ()
    uart: int = 0
    plugin: str = ""
    loads: tuple[PreloadedMemory, ...] = ()
    gdb: str = ""
    has_uart: bool = True

    def arguments(self) -> list[str]:
        """The whole command line, the program first."""
        unused = [arg for _ in range(self.uart) for arg in ("-serial", "null")]
        return [
            self.program,
            *("-machine", self.machine),
            *self.extra,
            *(() if self.kernel is None else ("-kernel", str(self.kernel))),
            *(arg for load in self.loads for arg in ("-device", _loader(load))),
            *("-icount", "shift=0"),
            *(("-plugin", self.plugin) if self.plugin else ()),
            *("-display", "none", "-monitor", "none", "-nodefaults"),
            *("-chardev", "stdio,id=link,signal=off"),
            *unused,
            *(("-serial", "chardev:link") if self.has_uart else ()),
            *(_debugger(self.gdb) if self.gdb else ()),
        ]


def _debugger(path: str) -> tuple[str, ...]:
    socket = f"socket,path={path.replace(',', ',,')},server=on,wait=off,id=gdb"
    return ("-S", "-chardev", socket, "-gdb", "chardev:gdb")


def _loader(load: PreloadedMemory) -> str:
    """QEMU's generic loader; a comma in a value is written twice."""
    file = str(load.file).replace(",", ",,")
    return f"loader,file={file},addr={load.address:#x},force-raw=on"


def start_qemu(command: QemuCommand) -> ProcessTransport:
    """Starts the emulator with the image already running."""
    if shutil.which(command.program) is None:
        package = PACKAGES.get(command.program, command.program)
        raise ToolMissingError(
            f"{command.program} is not installed.",
            where=command.machine,
            hint=f"apt install {package}.",
        )
    return ProcessTransport(
        command.arguments(),
        name=f"{command.program} -machine {command.machine}",
        hint="start the session again; if it happens every time, "
        f"try the command by hand: {' '.join(command.arguments())}",
    )
