"""Firmware onto a board: which runner, its commands, what it needs, and whether it worked.

In: an `Image` and its board. Out: a `FlashResult`. A runner is a tool of other people (its
commands are
run), the volume of a boot ROM (the file is copied), a GDB stub, or a boot ROM behind a serial port
(both spoken to here). With `verify` what is in the flash is read back and compared.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from firmwright.artifacts import Image
from firmwright.base.errors import DeviceError, ToolFailedError, ToolMissingError, UsageError
from firmwright.base.platform_compat import user_tag
from firmwright.boards import Board
from firmwright.boards.flash_tools import BOOTLOADER_PROTOCOL
from firmwright.device.flash_image import FlashImage, read_hex, to_uf2
from firmwright.device.flash_tools import JLINK_ERASE, TOOLS, FlashJob, FlashTool, ToolCommand
from firmwright.device.gdb_client import GdbClient
from firmwright.device.serial_port_discovery import PortChooser, find_serial_port, usb_ports
from firmwright.device.serial_transport import SerialTransport
from firmwright.device.stm32_boot_rom import BAUD, PARITY, Stm32BootRom

log = logging.getLogger(__name__)
TOOL_TIMEOUT_S = 300.0
MOUNT_FOLDERS = (Path("/run/media"), Path("/media"), Path("/Volumes"))
"""Below which systems show volumes, directly or in a folder of the user's."""


@dataclass(frozen=True, slots=True)
class FlashResult:
    """What was done: by which runner, where to, how much, whether it was read back."""

    board: str
    runner: str
    place: str
    size_bytes: int
    verified: bool


@dataclass(frozen=True, slots=True)
class FlashPlan:
    """A runner for an image; `argument_for` is what it must know of this board, or the caller's
    word.
    """

    board: Board
    runner: str
    argument_for: str
    job: FlashJob
    image: FlashImage

    def commands(self, *, verify: bool) -> tuple[ToolCommand, ...]:
        """What will be run; empty for runners that need no tool."""
        tool = TOOLS.get(self.runner)
        if tool is None:
            return ()
        reads = tool.read(self.job) if verify and tool.read is not None else ()
        return (*tool.write(self.job, verify), *reads)


def plan_flashing(board: Board, image: Image, runner: str = "", address: str = "") -> FlashPlan:
    """The runner that was asked for, else the board's own; `address` is of a stub, port, volume."""
    if image.hex is None or image.bin is None:
        raise UsageError("this board has no flash.", where=board.name, hint="run the model on it.")
    chosen = runner or next((name for name, _ in board.flash_tools.tools), "")
    argument = board.flash_tools.argument_for(chosen)
    if chosen == "gdb" and address:
        argument = address
    if argument is None or (chosen == "gdb" and not argument):
        known = ", ".join(name for name, _ in board.flash_tools.tools) or "none"
        asked = f"{chosen!r}" if chosen else "no runner"
        raise UsageError(
            f"the board's file says nothing of {asked}; it names {known}.",
            where=board.name,
            hint="--runner with one of those, --runner gdb --address HOST:PORT for any GDB stub.",
        )
    if argument == BOOTLOADER_PROTOCOL:
        raise UsageError(
            "the resident loader wants firmware that is linked for its slot.",
            where=board.name,
            hint="firmwright flash MODEL or PROJECT --runner serial.",
        )
    content = read_hex(image.hex)
    job = FlashJob(
        argument=argument,
        hex=image.hex,
        bin=image.bin,
        uf2=image.bin.with_suffix(".uf2"),
        start=content.start,
        size_bytes=image.bin.stat().st_size,
    )
    return FlashPlan(board, chosen, argument, job, content)


def flash(
    plan: FlashPlan, *, verify: bool = False, address: str = "", choose: PortChooser | None = None
) -> FlashResult:
    """Does it. Raises ToolMissingError, ToolFailedError, DeviceError, UsageError."""
    log.info("flashing %d bytes by %s", plan.image.size_bytes, plan.runner)
    match plan.runner:
        case "gdb":
            place, checked = _by_stub(plan, verify), verify
        case "serial":
            place, checked = _by_boot_rom(plan, address, choose, verify=verify), verify
        case "uf2":
            place, checked = _by_volume(plan, address, verify=verify), False
        case name:
            place, checked = _by_tool(plan, TOOLS[name], verify=verify), verify
    return FlashResult(plan.board.name, plan.runner, place, plan.image.size_bytes, checked)


@dataclass(frozen=True, slots=True)
class ErasePlan:
    """A tool and the commands with which it empties a board's flash; `script` goes to a file."""

    board: str
    runner: str
    commands: tuple[ToolCommand, ...]
    script: Path | None


def plan_erase(board: Board, runner: str = "") -> ErasePlan:
    """The tool that was asked for, else the first of the board's that can erase."""
    able = [(name, argument) for name, argument in board.flash_tools.tools if name in TOOLS]
    found = next(((n, argument) for n, argument in able if runner in ("", n)), None)
    if found is None:
        known = ", ".join(name for name, _ in able) or "none"
        raise UsageError(
            f"no tool erases this board; its file names {known}.",
            where=board.name,
            hint=f"--runner {able[0][0]}." if able else "flash overwrites what it needs.",
        )
    name, argument = found
    nothing = Path(tempfile.gettempdir()) / f"firmwright-erase-{user_tag()}.bin"
    job = FlashJob(argument, nothing, nothing, nothing, board.flash.start, 0)
    script = job.script if TOOLS[name].script is not None else None
    return ErasePlan(board.name, name, TOOLS[name].erase(job), script)


def erase(plan: ErasePlan) -> None:
    """Empties the whole flash."""
    if plan.script is not None:
        plan.script.write_text(JLINK_ERASE, encoding="ascii", newline="\n")
    for command in plan.commands:
        _run(command, TOOLS[plan.runner], plan.board)


# ---- Runners ------------------------------------------------------------------------------------


def _by_tool(plan: FlashPlan, tool: FlashTool, *, verify: bool) -> str:
    if plan.runner == "picotool":
        plan.job.uf2.write_bytes(to_uf2(plan.image, plan.board.flash_tools.uf2_family))
    if tool.script is not None:
        plan.job.script.write_text(tool.script(plan.job, verify), encoding="ascii", newline="\n")
    for command in plan.commands(verify=verify):
        _run(command, tool, plan.board.name)
    if verify and tool.read is not None:
        _compare(plan.job)
    return tool.program


def _compare(job: FlashJob) -> None:
    found, wanted = job.read_back.read_bytes(), job.bin.read_bytes()
    if found[: len(wanted)] == wanted:
        return
    pairs = enumerate(zip(found, wanted, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), len(found))
    raise DeviceError(
        f"what was read back differs from the image at {job.start + at:#x}.",
        where=str(job.read_back),
        hint="flash again; if it stays, the flash is worn or protected.",
    )


def _run(command: ToolCommand, tool: FlashTool, board: str) -> None:
    if shutil.which(command[0]) is None:
        what = f"{command[0]} is not installed."
        raise ToolMissingError(what, where=board, hint=f"{tool.install}.")
    log.info("%s", " ".join(command))
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as problem:
        what = f"{command[0]} took longer than {TOOL_TIMEOUT_S:g} s."
        raise ToolFailedError(what, command=command, where=board) from problem
    if done.returncode != 0:
        raise ToolFailedError(
            f"{command[0]} could not flash the board.",
            command=command,
            exit_status=done.returncode,
            output=done.stdout.decode("utf-8", "replace"),
            where=board,
            hint="check cable and probe; firmwright flash --dry-run shows the command.",
        )


def _by_stub(plan: FlashPlan, verify: bool) -> str:
    with GdbClient(plan.argument_for) as stub:
        stub.load(plan.image)
        if verify:
            stub.verify(plan.image)
        if plan.board.port == "cortex_m":
            stub.begin_cortex_m(_vectors(plan))
        else:
            stub.begin_riscv(plan.image.start)
    return plan.argument_for


def _vectors(plan: FlashPlan) -> int:
    """Behind the 256 bytes that an RP2040 begins with, else at the beginning."""
    return plan.image.start + (0x100 if plan.board.boot == "rp2040" else 0)


def _by_boot_rom(plan: FlashPlan, port: str, choose: PortChooser | None, *, verify: bool) -> str:
    name = port or find_serial_port(
        plan.board.name, plan.board.flash_tools.usb, usb_ports(), choose
    )
    line = SerialTransport(name, baud=BAUD, parity=PARITY)
    try:
        rom = Stm32BootRom(line)
        rom.load(plan.image)
        if verify:
            rom.verify(plan.image)
        rom.start(plan.image.start)
    finally:
        line.close()
    return name


def _by_volume(plan: FlashPlan, folder: str, *, verify: bool) -> str:
    if verify:
        raise UsageError(
            "what a boot ROM's volume took cannot be read back.",
            where=plan.board.name,
            hint="--runner picotool --verify.",
        )
    volume = (
        Path(folder) if folder else find_volume(plan.argument_for, MOUNT_FOLDERS, plan.board.name)
    )
    if not (volume / "INFO_UF2.TXT").is_file():
        raise DeviceError(
            "this is not the volume of a boot ROM: it has no INFO_UF2.TXT.", where=str(volume)
        )
    content = to_uf2(plan.image, plan.board.flash_tools.uf2_family)
    (volume / "firmware.uf2").write_bytes(content)
    return str(volume)


def find_volume(label: str, roots: Sequence[Path], board: str) -> Path:
    """The mounted volume with that label."""
    places = [r / label for r in roots] + [p for r in roots for p in sorted(r.glob(f"*/{label}"))]
    found = [place for place in places if place.is_dir()]
    if not found:
        raise DeviceError(
            f"no volume called {label} is mounted.",
            where=board,
            hint="hold BOOTSEL while you connect the board, or name the volume: --address DIR.",
        )
    return found[0]
