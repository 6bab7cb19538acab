"""Debugs a running model with GDB, stopped at the start of an operator.

One breakpoint on the profile image's probe serves all operators. For a physical board,
only the commands of GDB and of the debug probe's server are returned.
"""

import contextlib
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from firmwright.artifacts import Image
from firmwright.base.child_process import find_program
from firmwright.base.errors import DeviceError, ToolMissingError, UsageError
from firmwright.boards import Board
from firmwright.boards.flash_tools import FlashTools
from firmwright.device.errors import Timeouts
from firmwright.device.qemu_process import QemuCommand, start_qemu, wait_for_gdb_stub
from firmwright.device.session import Session
from firmwright.device.transport import Transport
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.samples.sample_batches import Tensors, generate_largest
from firmwright.pipeline import Compilation

Command = tuple[str, ...]
BREAKPOINT_TIMEOUT_S: Final = 24 * 3600.0
"""The firmware does not answer while it is stopped at a breakpoint."""
DEBUGGER: Final = "gdb-multiarch"
_NO_SCRIPTS: Final = ("-nx", "-iex", "set auto-load off")
"""Neither .gdbinit files nor scripts that an image names are executed."""


@dataclass(frozen=True, slots=True)
class DebugCommands:
    """The command that starts GDB, and that of the debug server, () if not needed."""

    server: Command
    gdb: Command


def debug_commands(
    board: Board, elf: Path, address: str, operator: int | None
) -> DebugCommands:
    """Return the commands for `elf` on `board`; `address` is an emulator's GDB stub."""
    server: Command = ()
    target = address
    if not address:
        server, target = _server(board.name, board.flash_tools)
    steps = [f"target remote {target}"]
    if operator is not None:
        # Calls without data measure the probe's own cost.
        condition = f"operator_index == {operator} && phase == 0 && data != 0"
        steps.append(f"break fwr_probe if {condition}")
        steps.append("continue")
        steps.append("up")
    words: list[str] = []
    for step in steps:
        words += ["-ex", step]
    return DebugCommands(server, (DEBUGGER, *_NO_SCRIPTS, str(elf.absolute()), *words))


def _server(board: str, flash_tools: FlashTools) -> tuple[Command, str]:
    """Return the command of the first known debug server, and the address for GDB."""
    for name, setting in flash_tools.tools:
        match name:
            case "openocd":
                files: list[str] = []
                for file in setting.split():
                    files += ["-f", file]
                return ("openocd", *files), "localhost:3333"
            case "pyocd":
                return ("pyocd", "gdbserver", "--target", setting), "localhost:3333"
            case "jlink":
                server = ("JLinkGDBServer", "-device", setting, "-if", "SWD")
                return server, "localhost:2331"
            case "gdb":
                return (), setting
    what = "the board's file configures no debug probe."
    raise UsageError(
        what, where=board, hint="add one to its [flash] table, such as openocd."
    )


def find_debugger(toolchain: str) -> str:
    """Return an installed GDB that supports the toolchain's cores."""
    for name in (DEBUGGER, f"{toolchain}-gdb"):
        if find_program(name) is not None:
            return name
    what = f"neither {DEBUGGER} nor {toolchain}-gdb is installed."
    raise ToolMissingError(what, hint=f"install one: apt install {DEBUGGER}.")


def check_operator(compiled: Compilation, operator: int | None) -> None:
    if operator is None or compiled.summary.operator(operator) is not None:
        return
    count = compiled.summary.operator_count
    reason = f"the model has {count}, counted from 0"
    if 0 <= operator < count:
        reason = "it is a view of another operator's result"
    numbers = ", ".join(str(item.index) for item in compiled.summary.operators)
    what = f"there is no code of an operator {operator}: {reason}."
    raise UsageError(what, where=compiled.module.name, hint=f"use one of {numbers}.")


@contextlib.contextmanager
def start_halted(compiled: Compilation) -> Iterator[tuple[Image, str]]:
    """Yield image and stub socket of a halted emulator; resumed, it runs sample 0."""
    board = compiled.board
    if board.run.kind != "qemu":
        hint = "use --board mps2-an386, or another emulated board."
        raise UsageError(
            "only an emulator can be started halted.", where=board.name, hint=hint
        )
    image = build_image(compiled, "profile")
    with tempfile.TemporaryDirectory(prefix="firmwright-gdb-") as folder:
        path = Path(folder) / "gdb"
        run = board.run
        arguments = tuple(run.args)
        command = QemuCommand(
            run.machine, image.elf, run.program, arguments, gdb=str(path)
        )
        transport = start_qemu(command)
        try:
            wait_for_gdb_stub(path)
            samples = generate_largest(compiled.module, 1).samples
            drive = (transport, samples)
            threading.Thread(target=_drive, args=drive, daemon=True).start()
            yield image, str(path)
        finally:
            transport.close()


def _drive(transport: Transport, samples: Sequence[Tensors]) -> None:
    """Run the model until the emulator ends; errors are expected while debugging."""
    limit = BREAKPOINT_TIMEOUT_S
    timeouts = Timeouts(hello_s=limit, answer_s=limit, run_s=limit)
    with contextlib.suppress(DeviceError, ValueError, OSError):
        session = Session(transport, timeouts=timeouts)
        while True:
            session.run(samples[0])
