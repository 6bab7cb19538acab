"""Flashes by a tool, a boot ROM's volume or port, or a GDB stub (decision 0049)."""

import contextlib
import logging
import os
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from firmwright.artifacts import Image
from firmwright.base.child_process import find_program, private_folder, run_program
from firmwright.base.errors import (
    DeviceError,
    ToolFailedError,
    ToolMissingError,
    UsageError,
)
from firmwright.boards import Board
from firmwright.device.flash_image import FlashImage, read_hex, to_uf2
from firmwright.device.flash_tools import (
    JLINK_ERASE,
    TOOLS,
    FlashJob,
    FlashTool,
    ToolCommand,
)
from firmwright.device.gdb_client import GdbClient
from firmwright.device.serial_port import (
    PortChooser,
    SerialTransport,
    find_serial_port,
    usb_ports,
)
from firmwright.device.stm32_boot_rom import BAUD, PARITY, Stm32BootRom

log = logging.getLogger(__name__)
TOOL_TIMEOUT_S = 300.0
RESTART_TIMEOUT_S = 15.0
"""The time in which a boot ROM restarts after the last block of an image."""
_RESTART_POLL_S = 0.1
MOUNT_FOLDERS = (Path("/run/media"), Path("/media"), Path("/Volumes"))
"""The folders in which systems mount volumes, directly or in a folder for each user."""


@dataclass(frozen=True, slots=True)
class FlashResult:
    """The runner, the destination, the size, and whether the contents were verified."""

    board: str
    runner: str
    place: str
    size_bytes: int
    verified: bool


@dataclass(frozen=True, slots=True)
class FlashPlan:
    """A runner and its job; `argument` is the board's setting for it or an address."""

    board: Board
    runner: str
    argument: str
    job: FlashJob
    image: FlashImage

    def commands(self, *, verify: bool) -> tuple[ToolCommand, ...]:
        """Return the commands to run; () for runners that need no tool."""
        tool = TOOLS.get(self.runner)
        return tool.write_commands(self.job, verify) if tool is not None else ()


def plan_flashing(
    board: Board, image: Image, runner: str = "", address: str = ""
) -> FlashPlan:
    """Plan flashing with `runner`, by default the board's.

    `address` is the HOST:PORT of a GDB stub; pass a serial port or a volume to `flash`.

    Raise UsageError if the board has no flash or does not support the runner.
    """
    if image.hex is None or image.bin is None:
        raise UsageError(
            "this board has no flash.",
            where=board.name,
            hint="use firmwright run instead.",
        )
    tools = board.flash_tools.tools
    chosen = runner or (tools[0][0] if tools else "")
    argument = board.flash_tools.argument_for(chosen)
    if chosen == "gdb" and address:
        argument = address
    if argument is None or (chosen == "gdb" and not argument):
        supported = ", ".join(name for name, _ in tools) or "none"
        problem = f"the board's file does not configure {chosen!r}; it has {supported}."
        if not chosen:
            problem = "no runner was given, and the board's file configures"
            problem += f" {supported}."
        hint = "use one of those, or --runner gdb --address HOST:PORT for any GDB stub."
        if not tools:
            hint = (
                "emulated boards need no flashing; else --runner gdb --address "
                "HOST:PORT."
            )
        raise UsageError(problem, where=board.name, hint=hint)
    # The tools run in an empty folder.
    hex_file, bin_file = image.hex.absolute(), image.bin.absolute()
    content, uf2 = read_hex(hex_file), bin_file.with_suffix(".uf2")
    size_bytes = bin_file.stat().st_size
    job = FlashJob(argument, hex_file, bin_file, uf2, content.start, size_bytes)
    return FlashPlan(board, chosen, argument, job, content)


def flash(
    plan: FlashPlan,
    *,
    verify: bool = False,
    address: str = "",
    choose: PortChooser | None = None,
) -> FlashResult:
    """Flash the board.

    Raises ToolMissingError, ToolFailedError, DeviceError or UsageError.
    """
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
    size_bytes = plan.image.size_bytes
    return FlashResult(plan.board.name, plan.runner, place, size_bytes, checked)


@dataclass(frozen=True, slots=True)
class ErasePlan:
    """A tool and its commands to erase flash; J-Link reads its own from `script`."""

    board: str
    runner: str
    commands: tuple[ToolCommand, ...]
    script: Path | None


def plan_erase(board: Board, runner: str = "") -> ErasePlan:
    """Choose `runner` or the first of the board's tools that can erase."""
    erasers = [tool for tool in board.flash_tools.tools if tool[0] in TOOLS]
    choices = [tool for tool in erasers if runner in ("", tool[0])]
    if not choices:
        supported = ", ".join(name for name, _ in erasers) or "none"
        hint = "flash the board; that erases the pages it needs."
        if erasers:
            hint = f"use --runner {erasers[0][0]}."
        raise UsageError(
            f"no configured tool erases this board; its file has {supported}.",
            where=board.name,
            hint=hint,
        )
    name, argument = choices[0]
    unused = private_folder("erase") / "unused.bin"
    job = FlashJob(argument, unused, unused, unused, board.flash.start, 0)
    script = job.script if TOOLS[name].script else None
    return ErasePlan(board.name, name, TOOLS[name].erase_commands(job), script)


def erase(plan: ErasePlan) -> None:
    if plan.script is not None:
        plan.script.write_text(JLINK_ERASE, encoding="ascii", newline="\n")
    tool = TOOLS[plan.runner]
    printed = [_run(command, tool, plan.board) for command in plan.commands]
    _check_proof("erasing", (tool.erase_proof,), printed, plan.commands, plan.board)


def run_flash_command(image: Image, template: str) -> None:
    """Run a command with {elf}, {bin} and {hex} for the image's files; "" is none."""
    if not template:
        return
    files = {"{elf}": image.elf, "{bin}": image.bin, "{hex}": image.hex}
    words = shlex.split(template)
    for name, file in files.items():
        words = [word.replace(name, str(file)) for word in words]
    try:
        # The user's own command: it may name files relative to the current folder.
        status, output = run_program(
            words,
            words[0],
            timeout_s=TOOL_TIMEOUT_S,
            folder=Path.cwd(),
            has_terminal=True,
        )
    except (ToolMissingError, ToolFailedError) as error:
        what = f"the board cannot be flashed: {error}."
        raise UsageError(what, where=template) from error
    if status:
        what = (
            f"the board cannot be flashed: {words[0]} ended with {status}. "
            f"{output.strip()}"
        )
        raise DeviceError(what, where=template)


# ---- runners -------------------------------------------------------------------------


def _by_tool(plan: FlashPlan, tool: FlashTool, *, verify: bool) -> str:
    if plan.runner == "picotool":
        plan.job.uf2.write_bytes(to_uf2(plan.image, plan.board.flash_tools.uf2_family))
    if tool.script:
        text = tool.script_text(plan.job, verify)
        plan.job.script.write_text(text, encoding="ascii", newline="\n")
    plan.job.read_back.unlink(missing_ok=True)
    commands, board = plan.commands(verify=verify), plan.board.name
    printed = [_run(command, tool, board) for command in commands]
    _check_proof("flashing", tool.proofs(verify), printed, commands, board)
    if verify and tool.read:
        _compare(plan.job, board)
    return tool.program


def _check_proof(
    work: str,
    proofs: Sequence[str],
    printed: Sequence[str],
    commands: Sequence[ToolCommand],
    board: str,
) -> None:
    """Raise ToolFailedError if the tool's own messages of success are missing."""
    output = "\n".join(printed)
    lines = [line.strip() for line in output.splitlines()]
    missing: list[str] = []
    for proof in proofs:
        if not any(re.fullmatch(proof, line) for line in lines):
            missing.append(proof)
    if missing:
        said = f"{commands[0][0]} ended with 0, but did not print a line like"
        what = f"{work} is not proved: {said} {missing[0]}."
        hint = "check the board; firmwright flash --verify reads the flash back."
        raise ToolFailedError(
            what, command=commands[-1], output=output, where=board, hint=hint
        )


def _compare(job: FlashJob, board: str) -> None:
    if not job.read_back.is_file():
        what = "flashing is not proved: the tool did not read the flash back."
        raise ToolFailedError(
            what, where=board, hint="flash again, or use another --runner."
        )
    actual, expected = job.read_back.read_bytes(), job.bin.read_bytes()
    if actual[: len(expected)] == expected:
        return
    at = len(actual)
    for index, (found, wanted) in enumerate(zip(actual, expected, strict=False)):
        if found != wanted:
            at = index
            break
    what = f"the flash contents differ from the image at {job.start + at:#x}."
    hint = "flash again; if the error persists, the flash is worn or protected."
    raise DeviceError(what, where=str(job.read_back), hint=hint)


def _run(command: ToolCommand, tool: FlashTool, board: str) -> str:
    if find_program(command[0]) is None:
        what = f"{command[0]} is not installed."
        raise ToolMissingError(what, where=board, hint=f"{tool.install}.")
    log.info("%s", " ".join(command))
    status, printed = run_program(
        command, command[0], timeout_s=TOOL_TIMEOUT_S, where=board
    )
    if status != 0:
        raise ToolFailedError(
            f"{command[0]} could not flash the board.",
            command=command,
            exit_status=status,
            output=printed,
            where=board,
            hint=(
                "check cable and probe; firmwright flash --dry-run prints the command."
            ),
        )
    return printed


def _by_stub(plan: FlashPlan, verify: bool) -> str:
    with GdbClient(plan.argument) as stub:
        stub.load(plan.image)
        if verify:
            stub.verify(plan.image)
        if plan.board.port == "cortex_m":
            # The vector table follows the RP2040's second-stage boot code.
            boot_bytes = 0x100 if plan.board.boot == "rp2040" else 0
            stub.begin_cortex_m(plan.image.start + boot_bytes)
        else:
            stub.begin_riscv(plan.image.start)
    return plan.argument


def _by_boot_rom(
    plan: FlashPlan, port: str, choose: PortChooser | None, *, verify: bool
) -> str:
    tools = plan.board.flash_tools
    name = port or find_serial_port(plan.board.name, tools.usb, usb_ports(), choose)
    with contextlib.closing(SerialTransport(name, baud=BAUD, parity=PARITY)) as line:
        rom = Stm32BootRom(line)
        rom.load(plan.image)
        if verify:
            rom.verify(plan.image)
        rom.start(plan.image.start)
    return name


def _by_volume(plan: FlashPlan, folder: str, *, verify: bool) -> str:
    if verify:
        what = "a boot ROM's volume cannot be read back."
        raise UsageError(
            what, where=plan.board.name, hint="use --runner picotool --verify."
        )
    if folder:
        volume = Path(folder)
    else:
        volume = find_volume(plan.argument, MOUNT_FOLDERS, plan.board.name)
    if not (volume / "INFO_UF2.TXT").is_file():
        what = "this is not the volume of a boot ROM: it has no INFO_UF2.TXT."
        hint = "name the volume that the board mounts: --address DIR."
        raise DeviceError(what, where=str(volume), hint=hint)
    uf2 = to_uf2(plan.image, plan.board.flash_tools.uf2_family)
    with (volume / "firmware.uf2").open("wb") as file:
        file.write(uf2)
        with contextlib.suppress(OSError):  # a board that has already restarted
            file.flush()
            os.fsync(file.fileno())
    _wait_for_restart(volume, plan.board.name)
    return str(volume)


def _wait_for_restart(volume: Path, board: str) -> None:
    """Return when the boot ROM, which restarts after an image, removes its volume."""
    deadline = time.monotonic() + RESTART_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            (volume / "INFO_UF2.TXT").stat()
        except OSError:
            return
        time.sleep(_RESTART_POLL_S)
    what = f"flashing is not proved: the volume remained for {RESTART_TIMEOUT_S:g} s."
    hint = "check that the image is for this chip, or use --runner picotool --verify."
    raise DeviceError(what, where=f"{board}: {volume}", hint=hint)


def find_volume(label: str, roots: Sequence[Path], board: str) -> Path:
    candidates = [root / label for root in roots]
    for root in roots:
        candidates += sorted(root.glob(f"*/{label}"))
    folders = [place for place in candidates if place.is_dir()]
    if not folders:
        hint = (
            "hold BOOTSEL while connecting the board, or name the volume: --address "
            "DIR."
        )
        raise DeviceError(
            f"no volume called {label} is mounted.", where=board, hint=hint
        )
    return folders[0]
