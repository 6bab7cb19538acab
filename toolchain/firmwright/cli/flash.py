"""`firmwright flash`: flash firmware to a board."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.boards import Board, load_board
from firmwright.build import build_project, read_project_board
from firmwright.cli import arguments
from firmwright.cli.verb import Outcome, add_options
from firmwright.device.serial_port import PortChooser, SerialPortInfo
from firmwright.flows import bootloader_flashing
from firmwright.flows.firmware_images import build_image
from firmwright.flows.flashing import FlashPlan, flash, plan_flashing

NAME = "flash"
HELP = "flash firmware to a board and start it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_model_options(
        parser, ".tflite, .onnx, .pt2 or .fwir file, or a project folder written by compile"
    )
    add_runner_options(parser)
    add_options(
        parser,
        """
        --verify  read the flash back and compare
        --model-only  through the bootloader: send the model only, for the installed application
        --dry-run  print the commands without running them
        """,
    )
    arguments.add_compile_options(parser)


def add_runner_options(parser: argparse.ArgumentParser) -> None:
    arguments.add_runner_option(parser)
    add_options(
        parser,
        """
        --address --port WHERE  for gdb: HOST:PORT or unix:PATH; for serial: the port; for uf2: the
            volume's folder
        """,
        address={"default": ""},
    )


def run(args: argparse.Namespace) -> Outcome:
    board = _board_of(args)
    if bootloader_flashing.uses_bootloader(board, args.runner):
        return _flash_via_bootloader(args, board)
    if args.model_only:
        what = "--model-only needs the bootloader on the board."
        hint = 'use --runner serial, with serial = "bootloader" in the board\'s file.'
        raise UsageError(what, where=board.name, hint=hint)
    plan = make_flash_plan(args)
    commands = plan.commands(verify=args.verify)
    if args.dry_run:
        size_bytes = plan.image.size_bytes
        text = f"{plan.runner}: {size_bytes:,} bytes, without an external tool."
        data = {"board": plan.board.name, "runner": plan.runner, "size_bytes": size_bytes}
        lines = [shlex.join(command) for command in commands]
        return Outcome({**data, "commands": commands}, "\n".join(lines) or text)
    result = flash(plan, verify=args.verify, address=args.address, choose=port_prompt())
    checked = ", verified" if result.verified else ""
    size = f"{result.size_bytes:,} bytes flashed"
    text = f"{result.board}: {size} by {result.runner} ({result.place}){checked}."
    return Outcome(asdict(result), text)


def make_flash_plan(args: argparse.Namespace) -> FlashPlan:
    folder = Path(args.model)
    if folder.is_dir():
        image = build_project(folder)
        board = _board(image.board, args)
    else:
        compiled = arguments.compile_from_args(args)
        image, board = build_image(compiled), compiled.board
    return plan_flashing(board, image, args.runner, args.address)


def _board_of(args: argparse.Namespace) -> Board:
    folder = Path(args.model)
    if folder.is_dir():
        return _board(read_project_board(folder), args)
    if not args.board:
        raise UsageError("no board was given.", where="flash", hint="add --board B.")
    return load_board(args.board, args.board_dirs)


def _board(name: str, args: argparse.Namespace) -> Board:
    if args.board and args.board != name:
        what = f"the project is for board {name}, not {args.board}."
        raise UsageError(what, where=args.model, hint="omit --board.")
    return load_board(name, args.board_dirs)


def port_prompt() -> PortChooser | None:
    """Return a function that asks for the port, or None without a terminal."""
    return _ask if sys.stdin.isatty() and sys.stderr.isatty() else None


def _ask(ports: Sequence[SerialPortInfo]) -> SerialPortInfo:
    for number, port in enumerate(ports, 1):
        print(f"{number}: {port}", file=sys.stderr)
    while True:
        print("port number: ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline().strip()
        if not answer:
            raise UsageError("no port was chosen.", hint="add --address PORT.")
        if answer.isdigit() and 1 <= int(answer) <= len(ports):
            return ports[int(answer) - 1]


def _flash_via_bootloader(args: argparse.Namespace, board: Board) -> Outcome:
    folder = Path(args.model)
    if folder.is_dir():
        firmware = bootloader_flashing.slot_firmware_from_folder(folder)
    else:
        firmware = bootloader_flashing.slot_firmware(arguments.compile_from_args(args))
    if args.dry_run:
        data = {"board": board.name, "runner": "serial", "commands": []}
        text = f"serial: {firmware.name}, linked for the free slot of the bootloader."
        return Outcome(data, text)
    with bootloader_flashing.open_bootloader_port(board, args.address, port_prompt()) as line:
        result = bootloader_flashing.flash_via_bootloader(
            firmware, board, line, verify=args.verify, is_model_update=args.model_only
        )
    return Outcome(
        {"runner": "serial", **asdict(result)}, _format_bootloader_result(firmware, result)
    )


def _format_bootloader_result(
    firmware: bootloader_flashing.SlotFirmware, result: bootloader_flashing.BootloaderFlashResult
) -> str:
    kind = "the model only" if result.model_only else "the application"
    sent = "all" if result.sent_bytes == result.size_bytes else f"{result.sent_bytes:,} of them"
    checked = ", verified" if result.verified else ""
    return (
        f"{firmware.name} on {result.board}: {kind}, {result.size_bytes:,} bytes in slot "
        f"{result.slot} ({sent} sent over {result.place}){checked}. The firmware is confirmed."
    )
