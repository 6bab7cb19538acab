"""`firmwright flash`: firmware onto a board, by the tool that its file names or by none at all."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.boards import Board, load_board
from firmwright.boards.flash_tools import FLASH_RUNNERS
from firmwright.build import build_project, read_project_board
from firmwright.cli.shared_options import (
    Outcome,
    add_compile_options,
    add_model_options,
    compile_from_args,
)
from firmwright.device.serial_port_discovery import PortChooser, SerialPortInfo
from firmwright.flows.bootloader_flashing import (
    BootloaderFlashResult,
    SlotFirmware,
    flash_via_bootloader,
    open_bootloader_port,
    slot_firmware,
    slot_firmware_from_folder,
    uses_bootloader,
)
from firmwright.flows.firmware_images import build_image
from firmwright.flows.flashing import FlashPlan, FlashResult, flash, plan_flashing

NAME = "flash"
HELP = "put firmware into a board's flash and start it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_options(parser, ".tflite, .onnx or .fwir file, or the folder that compile wrote")
    add_runner_options(parser)
    parser.add_argument("--verify", action="store_true", help="read it back and compare")
    parser.add_argument(
        "--model-only",
        action="store_true",
        help="through the resident loader: the model alone, for the application that is there",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done, the commands of the tool"
    )
    add_compile_options(parser)


def add_runner_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runner",
        choices=tuple(FLASH_RUNNERS),
        default="",
        help="the one that the board's file prefers",
    )
    parser.add_argument(
        "--address",
        "--port",
        metavar="WHERE",
        default="",
        help="of gdb: HOST:PORT or unix:PATH; of serial: the port; of uf2: the volume's folder",
    )


def run(args: argparse.Namespace) -> Outcome:
    board = _board_of(args)
    if uses_bootloader(board, args.runner):
        return _by_loader(args, board)
    if args.model_only:
        raise UsageError(
            "--model-only needs the resident loader on the board.",
            where=board.name,
            hint='--runner serial, with serial = "bootloader" in the board\'s file.',
        )
    plan = make_flash_plan(args)
    commands = plan.commands(verify=args.verify)
    if args.dry_run:
        return _shown(plan, commands)
    done = flash(plan, verify=args.verify, address=args.address, choose=port_prompt())
    return Outcome(_describe(done), _said(done))


def make_flash_plan(args: argparse.Namespace) -> FlashPlan:
    """The image of a model or a project, with the runner that the options ask for."""
    folder = Path(args.model)
    if folder.is_dir():
        image = build_project(folder)
        board = _board(image.board, args)
    else:
        compiled = compile_from_args(args)
        image, board = build_image(compiled), compiled.board
    return plan_flashing(board, image, args.runner, args.address)


def _board_of(args: argparse.Namespace) -> Board:
    folder = Path(args.model)
    if folder.is_dir():
        return _board(read_project_board(folder), args)
    if not args.board:
        raise UsageError("which board?", where="flash", hint="--board B.")
    return load_board(args.board, [Path(directory) for directory in args.boards_dir])


def _board(name: str, args: argparse.Namespace) -> Board:
    if args.board and args.board != name:
        what = f"the project is for board {name}, not {args.board}."
        raise UsageError(what, where=args.model, hint="leave --board out.")
    return load_board(name, [Path(directory) for directory in args.boards_dir])


def port_prompt() -> PortChooser | None:
    """Asks a person which port it is; where nobody sits there, None."""
    return _ask if sys.stdin.isatty() and sys.stderr.isatty() else None


def _ask(ports: Sequence[SerialPortInfo]) -> SerialPortInfo:
    for number, port in enumerate(ports, 1):
        print(f"{number}: {port}", file=sys.stderr)
    while True:
        print("which one? ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline().strip()
        if not answer:
            raise UsageError("no port was chosen.", hint="--address PORT.")
        if answer.isdigit() and 1 <= int(answer) <= len(ports):
            return ports[int(answer) - 1]


def _by_loader(args: argparse.Namespace, board: Board) -> Outcome:
    what = _loadable(args)
    if args.dry_run:
        data = {"board": board.name, "runner": "serial", "commands": []}
        said = f"serial: {what.name}, linked for the slot that the loader says is free."
        return Outcome(data, said)
    with open_bootloader_port(board, args.address, port_prompt()) as line:
        done = flash_via_bootloader(
            what, board, line, verify=args.verify, is_model_update=args.model_only
        )
    return Outcome(_describe_loaded(done), _said_loaded(what, done))


def _loadable(args: argparse.Namespace) -> SlotFirmware:
    folder = Path(args.model)
    return (
        slot_firmware_from_folder(folder)
        if folder.is_dir()
        else slot_firmware(compile_from_args(args))
    )


def _describe_loaded(done: BootloaderFlashResult) -> dict[str, object]:
    return {
        "board": done.board,
        "runner": "serial",
        "place": done.place,
        "slot": done.slot,
        "model_only": done.is_model_update,
        "size_bytes": done.size_bytes,
        "sent_bytes": done.sent_bytes,
        "verified": done.verified,
    }


def _said_loaded(what: SlotFirmware, done: BootloaderFlashResult) -> str:
    kind = "the model alone" if done.is_model_update else "the application"
    sent = "all" if done.sent_bytes == done.size_bytes else f"{done.sent_bytes:,} of them"
    checked = ", read back and compared" if done.verified else ""
    return (
        f"{what.name} on {done.board}: {kind}, {done.size_bytes:,} bytes in slot {done.slot} "
        f"({sent} sent over {done.place}){checked}. It answers, and stays."
    )


def _shown(plan: FlashPlan, commands: Sequence[Sequence[str]]) -> Outcome:
    lines = [shlex.join(command) for command in commands]
    said = "\n".join(lines) or f"{plan.runner}: {plan.image.size_bytes:,} bytes, by no other tool."
    data = {
        "board": plan.board.name,
        "runner": plan.runner,
        "size_bytes": plan.image.size_bytes,
        "commands": [list(command) for command in commands],
    }
    return Outcome(data, said)


def _describe(done: FlashResult) -> dict[str, object]:
    return {
        "board": done.board,
        "runner": done.runner,
        "place": done.place,
        "size_bytes": done.size_bytes,
        "verified": done.verified,
    }


def _said(done: FlashResult) -> str:
    checked = ", read back and compared" if done.verified else ""
    return f"{done.board}: {done.size_bytes:,} bytes by {done.runner} ({done.place}){checked}."
