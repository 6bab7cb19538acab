"""`firmwright bootloader`: build a board's bootloader, or list its slots."""

import argparse
import shlex
from pathlib import Path

from firmwright.artifacts import Image
from firmwright.base.errors import UsageError
from firmwright.boards import Board, load_board
from firmwright.boards.bootloader import BOOTLOADER_BYTES
from firmwright.cli import arguments
from firmwright.cli.text_table import Cell, format_table
from firmwright.cli.verb import Outcome, add_options, fields_of
from firmwright.device.bootloader_client import NO_SLOT, BootloaderInfo, SlotInfo, SlotState
from firmwright.flows.bootloader_flashing import build_bootloader, open_bootloader_port, read_slots

NAME = "bootloader"
HELP = "build the bootloader of a board, or list the contents of its slots"
_STATES = {
    SlotState.EMPTY: "empty",
    SlotState.UNCONFIRMED: "booted, not confirmed",
    SlotState.PENDING: "pending",
    SlotState.CONFIRMED: "confirmed",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_required_board_option(parser)
    add_options(
        parser,
        """
        -o --output DIR  write the project to DIR, for firmwright flash DIR
        --port URL  list the slots of the bootloader at this port
        """,
        port={"default": ""},
    )


def run(args: argparse.Namespace) -> Outcome:
    board = load_board(args.board, args.board_dirs)
    if not args.port:
        image = build_bootloader(board, Path(args.output) if args.output else None)
        return Outcome(_image_to_json(image, board), _format_image(image, board))
    if args.output:
        what = "--port and -o exclude each other."
        raise UsageError(what, where=NAME, hint="omit one of them.")
    with open_bootloader_port(board, args.port) as line:
        info, slots = read_slots(board, line)
    return Outcome(_slots_to_json(info, slots), _format_slots(info, slots))


# ---- the bootloader ----------------------------------------------------------------------------


def _image_to_json(image: Image, board: Board) -> dict[str, object]:
    assert board.bootloader is not None  # a board without bootloader raises earlier
    return {
        **fields_of(image, "board directory elf hex"),
        **fields_of(image.sizes, "flash_bytes ram_bytes"),
        "slots": board.bootloader.count,
        "slot_start": board.bootloader.start,
        **fields_of(board.bootloader, "slot_bytes page_bytes"),
    }


def _format_image(image: Image, board: Board) -> str:
    loader = board.bootloader
    assert loader is not None  # a board without bootloader raises earlier
    size = f"{image.sizes.flash_bytes:,} of {BOOTLOADER_BYTES:,} bytes"
    slots = f"{loader.count} slots of {loader.slot_bytes:,} bytes from {loader.start:#x}"
    about = f"the bootloader of {board.name}: {size}, {slots}"
    return "\n".join([about, str(image.elf), _how_to_start(image, board)])


def _how_to_start(image: Image, board: Board) -> str:
    if board.run.kind != "qemu":
        return "flash it once: firmwright bootloader -o DIR, firmwright flash DIR --runner R"
    quiet = ("-icount", "shift=0", "-display", "none", "-serial", "pty")
    words = (board.run.program, "-machine", board.run.machine, *board.run.args)
    return shlex.join([*words, "-kernel", str(image.elf), *quiet])


# ---- its slots ---------------------------------------------------------------------------------


def _slots_to_json(info: BootloaderInfo, slots: tuple[SlotInfo, ...]) -> dict[str, object]:
    return {
        **fields_of(info, "board free room_bytes"),
        "application": None if info.application == NO_SLOT else info.application,
        "model": None if info.model == NO_SLOT else info.model,
        "slots": [_slot_to_json(slot) for slot in slots],
    }


def _slot_to_json(slot: SlotInfo) -> dict[str, object]:
    contents = {
        **fields_of(slot, "sequence size_bytes crc"),
        "model_only": bool(slot.base),
        "id": slot.id.hex(),
    }
    if not slot.state:
        contents = dict.fromkeys(contents)
    return {"slot": slot.number, "state": slot.state.name.lower(), **contents}


def _format_slots(info: BootloaderInfo, slots: tuple[SlotInfo, ...]) -> str:
    rows = [_row(slot, slots) for slot in slots]
    head = ["slot", "holds", "state", "version", "bytes", "model"]
    boots = "nothing" if info.application == NO_SLOT else f"slot {info.application}"
    with_model = "" if info.model == NO_SLOT else f" with the model in slot {info.model}"
    summary = f"{info.board} boots {boots}{with_model}; slot {info.free} is free."
    return f"{format_table(head, rows)}\n{summary}"


def _row(slot: SlotInfo, slots: tuple[SlotInfo, ...]) -> list[Cell]:
    if slot.state == SlotState.EMPTY:
        return [slot.number, "nothing", _STATES[slot.state], None, None, ""]
    owner = next((s.number for s in slots if s.state and s.sequence == slot.base), None)
    holds = "an application"
    if slot.base:
        holds = "a model" if owner is None else f"a model for slot {owner}"
    state = _STATES[slot.state]
    return [slot.number, holds, state, slot.sequence, slot.size_bytes, slot.id.hex()]
