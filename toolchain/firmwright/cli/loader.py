"""`firmwright loader`: the resident loader of a board, and what lies in its slots."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from firmwright.artifacts import Image
from firmwright.base.errors import UsageError
from firmwright.boards import Board, load_board
from firmwright.boards.loading import LOADER_BYTES
from firmwright.cli.base import Outcome
from firmwright.cli.table import Cell, table
from firmwright.device.loader import NO_SLOT, LoaderInfo, Slot, SlotState
from firmwright.flows.loading import loader_port, look_into_slots, write_loader

NAME = "loader"
HELP = "build the resident loader of a board, or say what is in its slots"
_STATES = {
    SlotState.EMPTY: "empty",
    SlotState.TRIED: "tried, never confirmed",
    SlotState.UNTRIED: "not tried yet",
    SlotState.CONFIRMED: "confirmed",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--board", metavar="B", required=True, help="firmwright boards lists them")
    parser.add_argument("--boards-dir", metavar="DIR", action="append", default=[], help="more")
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="write the project there, for firmwright flash DIR"
    )
    parser.add_argument(
        "--port", metavar="URL", default="", help="ask the loader behind this port for its slots"
    )


def run(args: argparse.Namespace) -> Outcome:
    board = load_board(args.board, [Path(directory) for directory in args.boards_dir])
    if not args.port:
        image = write_loader(board, Path(args.output) if args.output else None)
        return Outcome(_describe(image, board), _said(image, board))
    if args.output:
        hint = "the project without --port."
        raise UsageError("--port and -o exclude each other.", where=NAME, hint=hint)
    with loader_port(board, args.port) as line:
        info, slots = look_into_slots(board, line)
    return Outcome(_describe_slots(info, slots), _said_slots(info, slots))


# ---- the loader itself -------------------------------------------------------------------------


def _describe(image: Image, board: Board) -> dict[str, object]:
    assert board.loader is not None  # it was built
    return {
        "board": image.board,
        "directory": str(image.directory),
        "elf": str(image.elf),
        "hex": str(image.hex),
        "flash_bytes": image.sizes.flash_bytes,
        "ram_bytes": image.sizes.ram_bytes,
        "slots": board.loader.count,
        "slot_start": board.loader.start,
        "slot_bytes": board.loader.slot_bytes,
        "page_bytes": board.loader.page_bytes,
    }


def _said(image: Image, board: Board) -> str:
    loader = board.loader
    assert loader is not None  # it was built
    lines = [
        f"the loader of {board.name}: {image.sizes.flash_bytes:,} of {LOADER_BYTES:,} bytes, "
        f"{loader.count} slots of {loader.slot_bytes:,} bytes from {loader.start:#x} on",
        str(image.elf),
        _how_to_start(image, board),
    ]
    return "\n".join(lines)


def _how_to_start(image: Image, board: Board) -> str:
    if board.run.kind != "qemu":
        return "put it on the board once: firmwright loader -o DIR, firmwright flash DIR --runner R"
    quiet = ("-icount", "shift=0", "-display", "none", "-serial", "pty")
    words = (board.run.program, "-machine", board.run.machine, *board.run.args)
    return shlex.join([*words, "-kernel", str(image.elf), *quiet])


# ---- its slots ---------------------------------------------------------------------------------


def _describe_slots(info: LoaderInfo, slots: tuple[Slot, ...]) -> dict[str, object]:
    return {
        "board": info.board,
        "free": info.free,
        "application": None if info.application == NO_SLOT else info.application,
        "model": None if info.model == NO_SLOT else info.model,
        "room_bytes": info.room_bytes,
        "slots": [
            {
                "slot": slot.number,
                "state": slot.state.name.lower(),
                "sequence": slot.sequence if slot.state else None,
                "size_bytes": slot.size_bytes if slot.state else None,
                "crc": slot.crc if slot.state else None,
                "model_only": bool(slot.base) if slot.state else None,
                "id": slot.id.hex() if slot.state else None,
            }
            for slot in slots
        ],
    }


def _said_slots(info: LoaderInfo, slots: tuple[Slot, ...]) -> str:
    rows: list[list[Cell]] = [_row(slot, slots) for slot in slots]
    head = ["slot", "holds", "state", "version", "bytes", "model"]
    shown = table(head, rows)
    starts = "nothing" if info.application == NO_SLOT else f"slot {info.application}"
    with_model = "" if info.model == NO_SLOT else f" with the model in slot {info.model}"
    return f"{shown}\n{info.board} starts {starts}{with_model}; slot {info.free} is free."


def _row(slot: Slot, slots: tuple[Slot, ...]) -> list[Cell]:
    if slot.state == SlotState.EMPTY:
        return [slot.number, "nothing", _STATES[slot.state], None, None, ""]
    owner = next((s.number for s in slots if s.state and s.sequence == slot.base), None)
    holds = "an application"
    if slot.base:
        holds = "a model" if owner is None else f"a model for slot {owner}"
    identity = slot.id.hex()
    return [slot.number, holds, _STATES[slot.state], slot.sequence, slot.size_bytes, identity]
