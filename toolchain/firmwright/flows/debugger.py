"""A debugger on a running model, stopped where an operator begins.

In: a compilation and the operator's number. Out: commands for GDB and, for a physical board, for
its probe's server; for an emulated one the emulator itself, halted, with a session behind it that
runs the model on one sample as soon as GDB lets it. The image is the profile image: its probe is
called before every operator, so that one breakpoint fits all, whatever the compiler inlined.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from firmwright.artifacts import Image
from firmwright.base.errors import DeviceError, ToolMissingError, UsageError
from firmwright.boards import Board
from firmwright.boards.flash_tools import FlashTools
from firmwright.device import QemuCommand, Session, Timeouts, Transport, start_qemu
from firmwright.flows.firmware_images import build_image
from firmwright.flows.sample_batches import Tensors, generate_samples
from firmwright.pipeline import Compilation

Command = tuple[str, ...]
BREAKPOINT_TIMEOUT_S: Final = 24 * 3600.0
"""A person thinks at a breakpoint, and the firmware does not answer meanwhile."""
STARTUP_TIMEOUT_S: Final = 20.0
DEBUGGER: Final = "gdb-multiarch"


@dataclass(frozen=True, slots=True)
class DebugCommands:
    """What to start: the server, where one is needed, and GDB."""

    server: Command
    gdb: Command


def debug_commands(board: Board, elf: Path, address: str, operator: int | None) -> DebugCommands:
    """The commands for `elf` on `board`; `address` is of the emulator's stub, else the server's."""
    server, place = ((), address) if address else _server(board.name, board.flash_tools)
    steps = [f"target remote {place}"]
    if operator is not None:
        # Where the probe's own cost is measured it is called without data.
        wanted = f"operator_index == {operator} && phase == 0 && data != 0"
        steps.append(f"break fwr_probe if {wanted}")
        steps.append("continue")
        steps.append("up")
    words = [word for step in steps for word in ("-ex", step)]
    return DebugCommands(server, (DEBUGGER, str(elf), *words))


def _server(board: str, flash_tools: FlashTools) -> tuple[Command, str]:
    for name, told in flash_tools.tools:
        match name:
            case "openocd":
                files = [word for file in told.split() for word in ("-f", file)]
                return ("openocd", *files), "localhost:3333"
            case "pyocd":
                return ("pyocd", "gdbserver", "--target", told), "localhost:3333"
            case "jlink":
                return ("JLinkGDBServer", "-device", told, "-if", "SWD"), "localhost:2331"
            case "gdb":
                return (), told
            case _:
                continue
    raise UsageError(
        "no debug probe is known for this board.",
        where=board,
        hint="name one in the board's [flash], such as openocd.",
    )


def find_debugger(toolchain: str) -> str:
    """A GDB that is installed and knows the toolchain's cores; this machine's own knows its own."""
    for name in (DEBUGGER, f"{toolchain}-gdb"):
        if shutil.which(name) is not None:
            return name
    what = f"there is neither {DEBUGGER} nor {toolchain}-gdb."
    raise ToolMissingError(what, hint=f"apt install {DEBUGGER}.")


def check_operator(compiled: Compilation, operator: int | None) -> None:
    """A UsageError where the model has no such operator."""
    count = len(compiled.metadata["operators"])
    if operator is not None and not 0 <= operator < count:
        raise UsageError(
            f"there is no operator {operator}: the model has {count}, counted from 0.",
            where=compiled.module.name,
            hint="firmwright profile MODEL lists them.",
        )


@contextlib.contextmanager
def start_halted(compiled: Compilation) -> Iterator[tuple[Image, str]]:
    """The emulator with the profile image, halted; and the path of the stub's socket.

    Once it runs, a session behind the link runs the model on sample 0 again and again.
    """
    board = compiled.board
    if board.run.kind != "qemu":
        raise UsageError("only an emulator is started halted.", where=board.name)
    image = build_image(compiled, "profile")
    with tempfile.TemporaryDirectory(prefix="firmwright-gdb-") as folder:
        path = Path(folder) / "gdb"
        run = board.run
        command = QemuCommand(run.machine, image.elf, run.program, tuple(run.args), gdb=str(path))
        transport = start_qemu(command)
        try:
            _wait_for(path)
            samples = generate_samples(compiled.module.io.inputs, 1, 0).samples
            thread = threading.Thread(target=_drive, args=(transport, samples), daemon=True)
            thread.start()
            yield image, str(path)
        finally:
            transport.close()


def _wait_for(path: Path) -> None:
    until = time.monotonic() + STARTUP_TIMEOUT_S
    while not path.exists():
        if time.monotonic() > until:
            raise DeviceError("the emulator did not open its stub.", where=str(path))
        time.sleep(0.01)


def _drive(transport: Transport, samples: Sequence[Tensors]) -> None:
    """Runs until the emulator ends. What happens to the firmware is the debugger's business."""
    timeouts = Timeouts(
        hello_s=BREAKPOINT_TIMEOUT_S, answer_s=BREAKPOINT_TIMEOUT_S, run_s=BREAKPOINT_TIMEOUT_S
    )
    with contextlib.suppress(DeviceError, ValueError, OSError):
        session = Session(transport, timeouts=timeouts)
        while True:
            session.run(samples[0])
