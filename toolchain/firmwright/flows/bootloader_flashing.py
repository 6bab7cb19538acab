"""Firmware through the resident loader: linked for the free slot, sent, tried, confirmed.

In: what can be linked for any slot, its board, a way to the device. Out: a
`BootloaderFlashResult`, whose image
has answered by its model's id. Invariant: until then the image that was confirmed before is there,
and a restart at any moment goes back to it.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from firmwright.artifacts import Image, SourceTree
from firmwright.base.errors import DeviceError, DoesNotFitError, RegionOverflow, UsageError
from firmwright.base.json_input import parse_json
from firmwright.boards import Board
from firmwright.boards.bootloader import (
    Bootloader,
    board_for_bootloader,
    board_for_model_update,
    board_for_slot,
)
from firmwright.boards.flash_tools import BOOTLOADER_PROTOCOL
from firmwright.build import build_project
from firmwright.build.project_folder import bootloader_project_files, project_files
from firmwright.device import SerialTransport, Session, Timeouts, Transport
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
from firmwright.device.link_protocol import ABI
from firmwright.device.serial_port_discovery import PortChooser, find_serial_port, usb_ports
from firmwright.flows.firmware_images import build_tree
from firmwright.ir.constant_pools import unlinked_pool_images
from firmwright.package.project_folder import MARKER, add_file_list, write_project
from firmwright.pipeline import Compilation

log = logging.getLogger(__name__)
ANSWER_S: Final = 10.0
"""How long the new firmware may take to answer."""
GO_BACK_S: Final = 3.0
RUNTIME_STACK_BYTES: Final = 512
"""What loop, link and an exception may take of the stack above a model's run."""

_LOOP: Final = "runtime/fwr_server.c"
_NO_LINK: Final = "firmware with another main than ours does not answer, so it cannot be confirmed."
_FAR_CONSTANTS: Final = "constants outside of the image do not go through the loader."


@dataclass(frozen=True, slots=True)
class SlotFirmware:
    """What becomes an image for any slot: `project` gives its files for a board linked so."""

    name: str
    model_id: bytes
    project: Callable[[Board], SourceTree]


@dataclass(frozen=True, slots=True)
class BootloaderFlashResult:
    """What was done. `sent_bytes` are fewer where pages were in the slot already."""

    board: str
    place: str
    slot: int
    is_model_update: bool
    size_bytes: int
    sent_bytes: int
    verified: bool


def slot_firmware(compiled: Compilation) -> SlotFirmware:
    """A compilation; UsageError where more than an image would have to be sent."""
    if compiled.task is not None:
        raise UsageError(_NO_LINK, where=compiled.module.name, hint="another runner.")
    if unlinked_pool_images(compiled.module):
        name = compiled.module.name
        raise UsageError(_FAR_CONSTANTS, where=name, hint="compile without --const-pool.")
    identity = bytes.fromhex(compiled.model_id)
    return SlotFirmware(
        compiled.module.name, identity, lambda board: replace(compiled, board=board).project()
    )


def slot_firmware_from_folder(folder: Path) -> SlotFirmware:
    """A project that compile wrote, its model and glue changed by hand or not.

    UsageError where it does not answer our link, or has constants outside of the image.
    """
    facts = _facts(folder / MARKER)
    if "model_id" not in facts:
        raise UsageError(
            "a loader does not go through itself."
            if facts.get(BOOTLOADER_PROTOCOL)
            else "there is no model.",
            where=str(folder),
            hint="--runner with another one, gdb for any GDB stub.",
        )
    try:
        identity = bytes.fromhex(str(facts["model_id"]))
    except ValueError as error:
        what = "its metadata.json names no model."
        raise UsageError(what, where=str(folder), hint="compile it anew.") from error
    sources = _facts(folder / "board" / "board.json").get("runtime_sources")
    if not isinstance(sources, list) or _LOOP not in sources:
        raise UsageError(_NO_LINK, where=str(folder), hint="another runner.")
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


def _facts(file: Path) -> dict[str, object]:
    try:
        facts = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        what = f"this is not of a project of ours: {problem}."
        hint = "firmwright compile writes one."
        raise UsageError(what, where=str(file), hint=hint) from problem
    return facts if isinstance(facts, dict) else {}


def uses_bootloader(board: Board, runner: str) -> bool:
    """Whether this runner, or the board's own where it is "", is the resident loader."""
    chosen = runner or next((name for name, _ in board.flash_tools.tools), "")
    return chosen == "serial" and board.flash_tools.argument_for(chosen) == BOOTLOADER_PROTOCOL


@contextlib.contextmanager
def open_bootloader_port(
    board: Board, port: str, choose: PortChooser | None = None
) -> Iterator[Transport]:
    """The port to the board, open for as long as the block runs."""
    name = port or find_serial_port(board.name, board.flash_tools.usb, usb_ports(), choose)
    with contextlib.closing(SerialTransport(name)) as line:
        yield line


def build_bootloader(board: Board, directory: Path | None = None) -> Image:
    """The loader's own image; its project is also written to `directory` where one is named."""
    project = bootloader_project_files(board_for_bootloader(board))
    facts = add_file_list({"board": board.name, BOOTLOADER_PROTOCOL: True}, project)
    text = json.dumps(facts, indent=2, sort_keys=True) + "\n"
    project = project.merged(SourceTree({MARKER: text}))
    if directory is None:
        return build_tree(project)
    write_project(project, directory)
    return build_project(directory)


# ---- Loading ------------------------------------------------------------------------------------


def flash_via_bootloader(
    what: SlotFirmware,
    board: Board,
    transport: Transport,
    *,
    verify: bool = False,
    is_model_update: bool = False,
) -> BootloaderFlashResult:
    """Brings it into the free slot, starts it, and lets it stay if it answers."""
    line = _greeted(transport, board)
    slot = line.info.free
    log.info("building for slot %d", slot)
    linked = _linked(board, line, is_model_update=is_model_update)
    image = build_tree(what.project(linked))
    data = _bytes_of(image)
    if is_model_update:
        _check_stack(image, _application(line), board)
    line = _greeted(transport, board)  # it may have lost patience while this was built
    if line.info.free != slot:
        what_happened = f"slot {slot} is no longer free: another host is at work."
        raise DeviceError(what_happened, where=transport.name, hint="flash again.")
    sent_bytes = line.send(data, _show)
    if verify:
        log.info("reading %d bytes back", len(data))
        line.verify(data)
    line.commit(data, what.model_id)
    _try_out(what, line, transport)
    return BootloaderFlashResult(
        board.name, transport.name, slot, is_model_update, len(data), sent_bytes, verify
    )


def _show(done: int, whole: int) -> None:
    log.info("%d of %d bytes are in the slot", done, whole)


def read_slots(board: Board, transport: Transport) -> tuple[BootloaderInfo, tuple[SlotInfo, ...]]:
    """What the loader there says; the application then goes on, if there is one."""
    line = _greeted(transport, board)
    slots = line.slots()
    if line.info.application != NO_SLOT:
        line.boot()
    return line.info, slots


def _greeted(transport: Transport, board: Board) -> BootloaderClient:
    line = enter_bootloader(transport)
    if line.info.board != board.name:
        raise DeviceError(
            f"this is the loader of board {line.info.board}, not {board.name}.",
            where=transport.name,
            hint=f"--board {line.info.board}, or another port.",
        )
    return line


def _linked(board: Board, line: BootloaderClient, *, is_model_update: bool) -> Board:
    """The board as the image is linked for it, with the slots that the device's loader has."""
    as_built = _as_built(board, line.info)
    if board_for_bootloader(as_built).handoff != line.info.handoff:
        raise DeviceError(
            f"the loader was built for a board whose RAM ends at {line.info.handoff + 16:#x}.",
            where=board.name,
            hint="build and flash the loader with this board's file.",
        )
    if not is_model_update:
        return board_for_slot(as_built, line.info.free)
    return board_for_model_update(as_built, line.info.free, _application(line).ram)


def _as_built(board: Board, info: BootloaderInfo) -> Board:
    driver = board.bootloader.driver if board.bootloader is not None else ""
    loader = Bootloader(driver, info.start, info.slot_bytes, info.page_bytes, info.count)
    return replace(board, bootloader=loader)


def _application(line: BootloaderClient) -> ImageHeader:
    """The header of the application that is there; a model alone needs one."""
    slot = line.info.application
    header = None if slot == NO_SLOT else read_image_header(line.read(slot, 0, IMAGE_BYTES))
    if header is None:
        raise DeviceError(
            "there is no application yet that could serve a model.",
            where=line.info.board,
            hint="flash a whole one first, without --model-only.",
        )
    if header.abi != ABI:
        raise DeviceError(
            f"the application there is of ABI {header.abi}; this firmwright's models are of {ABI}.",
            where=line.info.board,
            hint="flash the whole application, without --model-only.",
        )
    return header


def _bytes_of(image: Image) -> bytes:
    assert image.bin is not None  # every board with a loader has flash
    data = image.bin.read_bytes()
    return data.ljust(-(-len(data) // 4) * 4, b"\xff")


def _check_stack(image: Image, application: ImageHeader, board: Board) -> None:
    have = application.stack_high - application.stack_low
    need = image.stack.size_bytes + RUNTIME_STACK_BYTES
    if need > have:
        raise DoesNotFitError(
            f"the model's run needs {need:,} bytes of stack with the runtime's; the application "
            f"that is there has {have:,}: {need - have:,} too few.",
            regions=(RegionOverflow("stack", need, have),),
            where=board.name,
            hint="flash the whole application, without --model-only.",
        )


# ---- On trial -----------------------------------------------------------------------------------


class _NonClosingTransport:
    """A transport that a session cannot close: there is more to say afterwards."""

    def __init__(self, inner: Transport) -> None:
        self.name, self.read, self.write = inner.name, inner.read, inner.write

    def close(self) -> None:
        """Not ours to close."""


def _try_out(what: SlotFirmware, line: BootloaderClient, transport: Transport) -> None:
    """Starts what was committed; it is confirmed when it has answered."""
    slot = line.info.free
    line.boot()
    try:
        _require_answer(what, transport)
    except DeviceError as silent:
        raise _gone_back(what, line.info, transport, silent) from silent
    back = enter_bootloader(transport)
    back.confirm(slot)
    back.boot()
    _require_answer(what, transport)


def _require_answer(what: SlotFirmware, transport: Transport) -> None:
    timeouts = Timeouts(hello_s=ANSWER_S)
    Session(_NonClosingTransport(transport), model_id=what.model_id, timeouts=timeouts).close()


def _gone_back(
    what: SlotFirmware, before: BootloaderInfo, transport: Transport, why: DeviceError
) -> DeviceError:
    """What to say of a firmware that does not answer, after an attempt to restart it."""
    hint = "run the model in QEMU or on the host first; flash again."
    try:
        back = enter_bootloader(transport, patience_s=GO_BACK_S)
        if before.application != NO_SLOT:
            back.boot()
        after = "" if before.application != NO_SLOT else "The loader waits for another one."
        after = after or f"The loader has gone back to what is in slot {back.info.application}."
    except DeviceError:
        after = "At the next restart the loader goes back to the one before."
        if before.application == NO_SLOT:
            after = "There is none before it."
        hint = "restart the board; firmwright bootloader --port shows what is in its slots."
    reason = why.what.rstrip(".")
    return DeviceError(
        f"the new firmware of {what.name} did not stand its trial: {reason}. {after}",
        where=transport.name,
        hint=hint,
    )
