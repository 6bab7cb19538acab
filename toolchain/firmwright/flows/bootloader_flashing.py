"""Flashes through the bootloader: links for the free slot, sends, boots and confirms.

The new image is confirmed once it has answered with its model's id. Until then, the previously
confirmed image remains in its slot, and any restart returns to it.
"""

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from firmwright.artifacts import Image, SourceTree
from firmwright.base.errors import DeviceError, DoesNotFitError, RegionOverflow, UsageError
from firmwright.base.json_input import parse_json
from firmwright.boards import Board, bootloader
from firmwright.boards.flash_tools import BOOTLOADER_PROTOCOL
from firmwright.build import build_project
from firmwright.build.project_files import bootloader_project_files, project_files
from firmwright.device.bootloader_client import (
    IMAGE_BYTES,
    NO_SLOT,
    BootloaderClient,
    BootloaderInfo,
    ImageHeader,
    SlotInfo,
    enter_bootloader,
    read_image_header,
)
from firmwright.device.errors import Timeouts
from firmwright.device.link_protocol import ABI
from firmwright.device.serial_port import PortChooser, SerialTransport, find_serial_port, usb_ports
from firmwright.device.session import Session
from firmwright.device.transport import Transport
from firmwright.flows.firmware_images import build_tree
from firmwright.ir.constant_pools import unlinked_pool_images
from firmwright.package.project_writer import MARKER, add_file_list, write_project
from firmwright.pipeline import Compilation

log = logging.getLogger(__name__)
ANSWER_S: Final = 10.0
"""The time within which new firmware must answer."""
GO_BACK_S: Final = 3.0
RUNTIME_STACK_BYTES: Final = 512
"""The stack that the loop, the link and an exception need in addition to a model's run."""

_LOOP: Final = "runtime/fwr_server.c"
_NO_LINK: Final = "firmware with a main of its own does not answer, so it cannot be confirmed."
_FAR_CONSTANTS: Final = "constants outside of the image cannot be sent through the bootloader."


@dataclass(frozen=True, slots=True)
class SlotFirmware:
    """Firmware that can be linked for any slot; `project` returns its files for a board."""

    name: str
    model_id: bytes
    project: Callable[[Board], SourceTree]


@dataclass(frozen=True, slots=True)
class BootloaderFlashResult:
    """The outcome of flashing; `sent_bytes` excludes pages that the slot already contained."""

    board: str
    place: str
    slot: int
    model_only: bool
    size_bytes: int
    sent_bytes: int
    verified: bool


def slot_firmware(compiled: Compilation) -> SlotFirmware:
    """Return a compilation's firmware; raise UsageError if the bootloader cannot install it."""
    if compiled.task is not None:
        raise UsageError(_NO_LINK, where=compiled.module.name, hint="use another --runner.")
    if unlinked_pool_images(compiled.module):
        name = compiled.module.name
        raise UsageError(_FAR_CONSTANTS, where=name, hint="compile without --const-pool.")
    identity = bytes.fromhex(compiled.model_id)
    return SlotFirmware(
        compiled.module.name, identity, lambda board: replace(compiled, board=board).project()
    )


def slot_firmware_from_folder(folder: Path) -> SlotFirmware:
    """Return the firmware of a project folder that `compile` wrote, including later edits.

    Raise UsageError if its main does not serve the link, or constants are outside the image.
    """
    facts = _read_json_object(folder / MARKER)
    if "model_id" not in facts:
        raise UsageError(
            "the bootloader cannot update itself."
            if facts.get(BOOTLOADER_PROTOCOL)
            else "the folder holds no model.",
            where=str(folder),
            hint="use another --runner, such as gdb for any GDB stub.",
        )
    try:
        identity = bytes.fromhex(str(facts["model_id"]))
    except ValueError as error:
        what = "its metadata.json has no valid model id."
        raise UsageError(what, where=str(folder), hint="compile it again.") from error
    sources = _read_json_object(folder / "board" / "board.json").get("runtime_sources")
    if not isinstance(sources, list) or _LOOP not in sources:
        raise UsageError(_NO_LINK, where=str(folder), hint="use another --runner.")
    if any(not file.name.endswith(".params.bin") for file in folder.glob("model/*.bin")):
        raise UsageError(_FAR_CONSTANTS, where=str(folder), hint="compile without --const-pool.")
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.relative_to(folder).parts[0] in ("model", "firmware", "backend")
    }

    def project(board: Board) -> SourceTree:
        return SourceTree({**project_files(board).files, **files})

    return SlotFirmware(folder.name, identity, project)


def _read_json_object(file: Path) -> dict[str, object]:
    try:
        facts = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        what = f"this file is not from a Firmwright project: {problem}."
        hint = "create one with firmwright compile -o DIR."
        raise UsageError(what, where=str(file), hint=hint) from problem
    return facts if isinstance(facts, dict) else {}


def uses_bootloader(board: Board, runner: str) -> bool:
    """Return whether `runner` ("" for the board's default) is the bootloader."""
    chosen = runner or next((name for name, _ in board.flash_tools.tools), "")
    return chosen == "serial" and board.flash_tools.argument_for(chosen) == BOOTLOADER_PROTOCOL


@contextlib.contextmanager
def open_bootloader_port(
    board: Board, port: str, choose: PortChooser | None = None
) -> Iterator[Transport]:
    name = port or find_serial_port(board.name, board.flash_tools.usb, usb_ports(), choose)
    with contextlib.closing(SerialTransport(name)) as line:
        yield line


def build_bootloader(board: Board, directory: Path | None = None) -> Image:
    """Build the bootloader's image; if `directory` is given, also write the project there."""
    project = bootloader_project_files(bootloader.board_for_bootloader(board))
    facts = add_file_list({"board": board.name, BOOTLOADER_PROTOCOL: True}, project)
    text = json.dumps(facts, indent=2, sort_keys=True) + "\n"
    project = project.merged(SourceTree({MARKER: text}))
    if directory is None:
        return build_tree(project)
    write_project(project, directory)
    return build_project(directory)


# ---- sending ------------------------------------------------------------------------------------


def flash_via_bootloader(
    firmware: SlotFirmware,
    board: Board,
    transport: Transport,
    *,
    verify: bool = False,
    is_model_update: bool = False,
) -> BootloaderFlashResult:
    """Send the firmware to the free slot, boot it, and confirm it if it answers."""
    line = _enter_bootloader(transport, board)
    slot = line.info.free
    log.info("building for slot %d", slot)
    image = build_tree(firmware.project(_link_target(board, line, is_model_update=is_model_update)))
    assert image.bin is not None  # every board with a bootloader has flash
    data = image.bin.read_bytes()
    data = data.ljust(-(-len(data) // 4) * 4, b"\xff")
    if is_model_update:
        _check_stack(image, _application_header(line), board)
    line = _enter_bootloader(transport, board)  # it may have timed out during the build
    if line.info.free != slot:
        problem = f"slot {slot} is no longer free: another host has used it."
        raise DeviceError(problem, where=transport.name, hint="flash again.")
    show: Callable[[int, int], None] = partial(log.info, "%d of %d bytes are in the slot")
    sent_bytes = line.send(data, show)
    if verify:
        log.info("reading %d bytes back", len(data))
        line.verify(data)
    line.commit(data, firmware.model_id)
    _boot_and_confirm(firmware, line, transport)
    return BootloaderFlashResult(
        board.name, transport.name, slot, is_model_update, len(data), sent_bytes, verify
    )


def read_slots(board: Board, transport: Transport) -> tuple[BootloaderInfo, tuple[SlotInfo, ...]]:
    """Query the bootloader for its slots, then boot the application if there is one."""
    line = _enter_bootloader(transport, board)
    slots = line.slots()
    if line.info.application != NO_SLOT:
        line.boot()
    return line.info, slots


def _enter_bootloader(transport: Transport, board: Board) -> BootloaderClient:
    line = enter_bootloader(transport)
    if line.info.board != board.name:
        what = f"this is the bootloader of board {line.info.board}, not {board.name}."
        hint = f"use --board {line.info.board}, or another port."
        raise DeviceError(what, where=transport.name, hint=hint)
    return line


def _link_target(board: Board, line: BootloaderClient, *, is_model_update: bool) -> Board:
    driver = board.bootloader.driver if board.bootloader is not None else ""
    info = line.info
    slots = bootloader.Bootloader(driver, info.start, info.slot_bytes, info.page_bytes, info.count)
    as_built = replace(board, bootloader=slots)
    if bootloader.board_for_bootloader(as_built).handoff != line.info.handoff:
        raise DeviceError(
            f"the bootloader was built for a board with RAM up to {line.info.handoff + 16:#x}.",
            where=board.name,
            hint="build and flash the bootloader with this board's file.",
        )
    if not is_model_update:
        return bootloader.board_for_slot(as_built, line.info.free)
    return bootloader.board_for_model_update(
        as_built, line.info.free, _application_header(line).ram
    )


def _application_header(line: BootloaderClient) -> ImageHeader:
    """Return the header of the installed application, against which a model update is linked."""
    slot = line.info.application
    header = None if slot == NO_SLOT else read_image_header(line.read(slot, 0, IMAGE_BYTES))
    if header is None:
        what = "no application is installed that could run a model."
        hint = "flash the application first, without --model-only."
        raise DeviceError(what, where=line.info.board, hint=hint)
    if header.abi != ABI:
        what = f"the installed application has ABI {header.abi}; models of this version need {ABI}."
        hint = "flash the application again, without --model-only."
        raise DeviceError(what, where=line.info.board, hint=hint)
    return header


def _check_stack(image: Image, application: ImageHeader, board: Board) -> None:
    have = application.stack_high - application.stack_low
    need = image.stack.size_bytes + RUNTIME_STACK_BYTES
    if need > have:
        raise DoesNotFitError(
            f"the model and the runtime need {need:,} bytes of stack; the installed application "
            f"has {have:,}: {need - have:,} too few.",
            regions=(RegionOverflow("stack", need, have),),
            where=board.name,
            hint="flash the application again, without --model-only.",
        )


# ---- confirming ---------------------------------------------------------------------------------


class _NonClosingTransport:
    """A transport that stays open when a session closes it."""

    def __init__(self, inner: Transport) -> None:
        self.name, self.read, self.write = inner.name, inner.read, inner.write

    def close(self) -> None:
        """Keep the port open for the bootloader."""


def _boot_and_confirm(firmware: SlotFirmware, line: BootloaderClient, transport: Transport) -> None:
    slot = line.info.free
    line.boot()
    try:
        _require_answer(firmware, transport)
    except DeviceError as silent:
        raise _rollback_error(firmware, line.info, transport, silent) from silent
    back = enter_bootloader(transport)
    back.confirm(slot)
    back.boot()
    _require_answer(firmware, transport)


def _require_answer(firmware: SlotFirmware, transport: Transport) -> None:
    timeouts = Timeouts(hello_s=ANSWER_S)
    Session(_NonClosingTransport(transport), model_id=firmware.model_id, timeouts=timeouts).close()


def _rollback_error(
    firmware: SlotFirmware, before: BootloaderInfo, transport: Transport, why: DeviceError
) -> DeviceError:
    """Restart the device and return the error for firmware that does not answer."""
    hint = "run the model in QEMU or on the host first, then flash again."
    try:
        back = enter_bootloader(transport, patience_s=GO_BACK_S)
        if before.application != NO_SLOT:
            back.boot()
        after = "" if before.application != NO_SLOT else "The bootloader waits for new firmware."
        after = after or f"The bootloader has returned to slot {back.info.application}."
    except DeviceError:
        after = "The next restart returns to the previous firmware."
        if before.application == NO_SLOT:
            after = "There is no previous firmware."
        hint = "restart the board; firmwright bootloader --port lists its slots."
    reason = why.what.rstrip(".")
    return DeviceError(
        f"the new firmware of {firmware.name} was not confirmed: {reason}. {after}",
        where=transport.name,
        hint=hint,
    )
